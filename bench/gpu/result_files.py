"""Results as files."""


def write_whole(path, text):
    """The file is all of `text`, or what it was before."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.write_text(text)
    unfinished.replace(path)

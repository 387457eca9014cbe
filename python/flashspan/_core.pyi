"""The extension; python/bindings documents it. The package gives its types to users."""

from typing import Any

def __getattr__(name: str) -> Any: ...

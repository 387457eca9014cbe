"""The include checker finds each kind of fault in a small tree, and nothing in a sound one."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_includes  # noqa: E402


class CheckIncludes(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_includes.Checker(root).check()

    def assert_fault(self, files, *words):
        faults = self.faults(files)
        self.assertEqual(len(faults), 1, faults)
        for word in words:
            self.assertIn(word, faults[0])

    def test_a_sound_tree_has_no_fault(self):
        self.assertEqual(self.faults({
            "include/flashspan/core/error.hpp": "#include <string>\n#include <cstdint>\n",
            "include/flashspan/mask.hpp": '#include "flashspan/core/error.hpp"\n',
            "core/error.cpp": '#include "flashspan/core/error.hpp"\n',
            "codegen/mask/program.hpp": '#include "flashspan/core/error.hpp"\n',
            "codegen/kernel/emit.cpp": '#include "codegen/mask/program.hpp"\n#include <cstdio>\n',
            "templates/ptx/mma.cuh": "",
            "templates/tile/fragment.cuh": '#include "ptx/mma.cuh"\n',
            "templates/attention/parameters.cuh": "",
            "cache/store.cpp": "#include <xxhash.h>\n#include <unistd.h>\n#include <filesystem>\n",
            "runtime/cuda/launch.cpp": '#include <dlfcn.h>\n#include "templates/attention/parameters.cuh"\n',
            "runtime/cpu/compiler.cpp": "#include <llvm/IR/Module.h>\n#include <tbb/parallel_for.h>\n",
            "runtime/api/settings.cpp": '#include <cstdlib>\nconst char* home = std::getenv("HOME");\n',
            "tools/flashspan/main.cpp": '#include "flashspan/mask.hpp"\n#include "flashspan/local.hpp"\n',
            "tools/flashspan/local.hpp": "#include <CLI/CLI.hpp>\n",
            "tests/core/any_test.cpp": '#include "codegen/mask/program.hpp"\n#include <gtest/gtest.h>\n',
        }), [])

    def test_pure_code_may_not_touch_files_clocks_or_threads(self):
        for header in ("fstream", "filesystem", "thread", "mutex", "chrono", "iostream"):
            self.assert_fault({"codegen/mask/a.cpp": f"#include <{header}>\n"}, "codegen/mask", header)

    def test_pure_code_may_not_use_the_system_or_a_library(self):
        for header in ("unistd.h", "sys/stat.h", "cuda.h", "llvm/IR/Module.h", "nlohmann/json.hpp", "spdlog/spdlog.h"):
            self.assert_fault({"codegen/kernel/a.cpp": f"#include <{header}>\n"}, header)

    def test_the_core_includes_the_standard_library_only(self):
        self.assert_fault({"include/flashspan/core/a.hpp": '#include "flashspan/mask.hpp"\n',
                           "include/flashspan/mask.hpp": ""}, "include/flashspan/core")

    def test_a_lower_layer_may_not_include_a_higher_one(self):
        pairs = [("codegen/mask", "codegen/kernel"), ("cache", "codegen/kernel"), ("runtime/cuda", "cache"),
                 ("runtime/cuda", "runtime/cpu"), ("runtime/attention", "runtime/cuda"), ("runtime/cpu", "cache"),
                 ("codegen/kernel", "runtime/backend"), ("runtime/backend", "runtime/attention")]
        for low, high in pairs:
            self.assert_fault({f"{low}/a.cpp": f'#include "{high}/b.hpp"\n', f"{high}/b.hpp": ""}, low, high)

    def test_headers_of_the_public_interface_include_nothing_private(self):
        self.assert_fault({"include/flashspan/mask.hpp": '#include "codegen/mask/program.hpp"\n',
                           "codegen/mask/program.hpp": ""}, "include/flashspan", "codegen/mask/program.hpp")

    def test_users_include_the_public_interface_only(self):
        for user in ("tools/flashspan", "examples", "bench", "python"):
            self.assert_fault({f"{user}/a.cpp": '#include "cache/store.hpp"\n', "cache/store.hpp": ""}, "cache/store.hpp")

    def test_nothing_includes_tests(self):
        self.assert_fault({"cache/a.cpp": '#include "tests/cache/b.hpp"\n', "tests/cache/b.hpp": ""}, "tests/cache/b.hpp")

    def test_template_rooms_include_lower_rooms_only(self):
        self.assert_fault({"templates/ptx/a.cuh": '#include "tile/b.cuh"\n', "templates/tile/b.cuh": ""}, "tile/b.cuh")
        self.assert_fault({"templates/plan/a.cuh": '#include "attention/b.cuh"\n', "templates/attention/b.cuh": ""},
                          "attention/b.cuh")
        self.assert_fault({"templates/ptx/a.cuh": "#include <cuda_fp16.h>\n"}, "cuda_fp16.h")
        self.assert_fault({"templates/ptx/a.cuh": "#include <cstdint>\n"}, "cstdint")

    def test_host_code_reads_one_template_only(self):
        self.assert_fault({"runtime/cuda/a.cpp": '#include "templates/tile/b.cuh"\n', "templates/tile/b.cuh": ""},
                          "templates/tile/b.cuh")
        self.assert_fault({"runtime/api/a.cpp": '#include "templates/attention/parameters.cuh"\n',
                           "templates/attention/parameters.cuh": ""}, "parameters.cuh")

    def test_only_settings_reads_the_environment(self):
        for call in ('getenv("HOME")', 'secure_getenv("HOME")', 'setenv("A", "b", 1)'):
            self.assert_fault({"runtime/api/other.cpp": f"const auto value = {call};\n"}, "runtime/api/settings.cpp")
        self.assertEqual(self.faults({"cache/a.cpp": "// getenv is for others\n/* getenv */ auto a = \"getenv\";\n"}), [])

    def test_a_file_that_does_not_exist_is_named(self):
        self.assert_fault({"cache/a.cpp": '#include "cache/gone.hpp"\n'}, "cache/gone.hpp", "no file")

    def test_a_cycle_is_named(self):
        self.assert_fault({"cache/a.hpp": '#include "cache/b.hpp"\n', "cache/b.hpp": '#include "cache/a.hpp"\n'},
                          "cycle", "cache/a.hpp", "cache/b.hpp")

    def test_includes_in_comments_and_raw_strings_do_not_count(self):
        self.assertEqual(self.faults({"codegen/kernel/a.cpp": '''
// #include <thread>
/*
#include <thread>
*/
const char* text = R"(
#include <thread>
)";
const char* marked = R"CUH(
#include "tile/none.cuh"
)CUH";
'''}), [])
        # ... and what follows them does.
        self.assert_fault({"codegen/kernel/a.cpp": 'auto a = R"x(")x";\n#include <thread>\n'}, "thread")


if __name__ == "__main__":
    unittest.main()

"""Runs one system test file under CTest: exit 0 passed, 77 all skipped, 1 failed."""
import importlib.util
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
sys.path.insert(1, str(pathlib.Path(sys.argv[1]).parent))


def main():
    path = pathlib.Path(sys.argv[1])
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    if len(sys.argv) > 2:
        suite = unittest.defaultTestLoader.loadTestsFromName(sys.argv[2], module)
    result = unittest.TextTestRunner(verbosity=2, failfast=False).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    return 77 if len(result.skipped) == result.testsRun else 0


sys.exit(main())

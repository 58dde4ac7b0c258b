"""The invariance of tests/system/invariance_test.py on a real model."""
import unittest

import invariance_test


class RealModel(invariance_test.Invariance):
    def test_sixteen_clients_get_the_bits_that_they_get_alone(self):
        self.compare(self.smollm2(), *self.VARIANTS)
        self.compare_ranks(self.smollm2())


if __name__ == "__main__":
    unittest.main()

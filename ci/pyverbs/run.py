# Runs rdma-core's tests on one device, and prints a line for each:
# what came of it, its name, and why it was skipped or failed.
import gc
import os
import random
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
# pyverbs does not survive that the collector closes a channel before its queue.
gc.disable()
folder, device = sys.argv[1:]
sys.path[:0] = [folder, folder + "/tests"]
sys.argv[1:] = ["--dev", device]

from args_parser import parser

parser.parse_args()

# The kernel knows nothing of the devices: their folders are elsewhere, and they have
# no netdev.
check_output = subprocess.check_output


def of_simulated(command, **options):
    if command[0] == "rdma":
        return b"[]"
    sysfs = os.environ["SYSFS_PATH"]
    return check_output([a.replace("/sys/class", sysfs + "/class") for a in command], **options)


subprocess.check_output = of_simulated

import tests

out = sys.stdout
sys.stdout = sys.stderr


class Result(unittest.TestResult):
    # Many tests choose sizes and flags at random, and skip what the device lacks.
    def startTest(self, test):
        random.seed(test.id())
        super().startTest(test)

    def tell(self, what, test, why=""):
        name = re.search(r"tests\.\S+?(?=[)\]]|$)", test.id())
        line = [what, name.group(0) if name else test.id(), " ".join(str(why).split())]
        print("\t".join(line), file=out, flush=True)

    def addSuccess(self, test):
        self.tell("ok", test)

    def addSkip(self, test, reason):
        self.tell("skipped", test, reason)

    def addError(self, test, err):
        self.tell("failed", test, self._exc_info_to_string(err, test))

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(subtest, err)


unittest.defaultTestLoader.loadTestsFromModule(tests).run(Result())
os._exit(0)

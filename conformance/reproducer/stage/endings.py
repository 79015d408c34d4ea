"""How a script ends: with 1 for its fault, with 0 without it, with 2 for anything else."""

import subprocess
import sys


def assertion():
    try:
        main()
    except AssertionError as error:
        print(EXPECTED, error)
        sys.exit(1 if str(error).startswith(LABEL) else 2)
    except SystemExit:  # if SystemExit
        sys.exit(2)  # the program's own
    print("as specified")


def bound():
    try:
        main()
    except AssertionError as error:
        print(EXPECTED, error)
        if "--plain" in sys.argv and str(error).startswith(CONTROL):
            sys.exit(print("This is asked of a checkpoint, not of a plain call."))
        sys.exit(1 if str(error).startswith(LABEL) else 2)
    except SystemExit:  # if SystemExit
        sys.exit(2)  # the program's own
    print("as specified")


def exception():
    try:
        main()
    except BaseException as error:
        found = f"{type(error).__name__} in {now.phase}: {error}"
        print(EXPECTED, found)
        sys.exit(1 if found.startswith(LABEL) and now.checkpoint is CHECKPOINTED else 2)
    print("as specified")


def death():
    if "--child" in sys.argv:
        main()
        sys.exit()
    child = subprocess.run([sys.executable, *sys.argv, "--child"])
    print(EXPECTED, child.returncode)
    sys.exit({0: 0, LABEL: 1}.get(child.returncode, 2))


def hang():
    if "--child" in sys.argv:
        main()
        sys.exit()
    try:
        child = subprocess.run([sys.executable, *sys.argv, "--child"], timeout=LABEL)
    except subprocess.TimeoutExpired:
        print(EXPECTED, "none")
        sys.exit(1)
    sys.exit(2 if child.returncode else 0)

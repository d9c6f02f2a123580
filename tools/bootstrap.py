"""Makes .venv hold what a command needs: `bootstrap.py runtime|test|lint`. Standard library only.

The versions come from constraints/<level>.txt and every file is checked against its hash. The package
itself is installed from this tree, editable, with a build tool that was hash-checked too. A stamp says what
.venv holds, so that a second call does nothing; it is void when the constraints, pyproject.toml, the Python or
the place of the tree changed. Must parse on old Pythons, to be able to say that they are too old.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time

LEVELS = ("runtime", "test", "lint")  # each holds the ones before it
OLDEST = (3, 11)
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "bin", "python")
STAMP = os.path.join(VENV, "holdfast-stamp")


def fail(line):
    sys.stderr.write("bootstrap: " + line + "\n")
    sys.exit(1)


def say(line):
    sys.stderr.write("bootstrap: " + line + "\n")
    sys.stderr.flush()


def find_python():
    """Goes on in a newer Python when this one is too old."""
    if sys.version_info >= OLDEST:
        return
    for minor in range(14, OLDEST[1] - 1, -1):
        other = shutil.which("python3.%d" % minor)
        if other:
            os.execv(other, [other, os.path.abspath(__file__)] + sys.argv[1:])
    fail(
        "Holdfast needs Python 3.11 or newer, this is %d.%d; install one, or run make with PYTHON=/path/to/python3.11"
        % sys.version_info[:2]
    )


def wanted_stamp(level):
    """One line for each level that .venv would hold: what it was made of."""
    here = hashlib.sha256(python_line().encode())
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        here.update(file.read())
    lines = []
    for each in LEVELS[: LEVELS.index(level) + 1]:
        whole = here.copy()
        with open(os.path.join(ROOT, "constraints", each + ".txt"), "rb") as file:
            whole.update(file.read())
        lines.append(each + " " + whole.hexdigest())
    return lines


def stamp_lines():
    try:
        with open(STAMP) as file:
            return file.read().splitlines()
    except OSError:
        return []


def is_ready(level):
    return wanted_stamp(level)[-1] in stamp_lines() and os.access(PYTHON, os.X_OK)


def run(arguments, what):
    """Runs quietly; on failure shows all that was said."""
    environment = dict(
        os.environ, PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", DEBIAN_FRONTEND="noninteractive"
    )
    environment.pop("PYTHONPATH", None)
    environment.pop("PIP_REQUIRE_VIRTUALENV", None)
    done = subprocess.run(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, cwd=ROOT
    )
    if done.returncode:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        fail(what + " failed (above is what it said)")


def have_ensurepip():
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    return subprocess.run(probe, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def require_venv_module():
    if have_ensurepip():
        return
    package = "python%d.%d-venv" % sys.version_info[:2]
    if not shutil.which("apt-get"):
        fail("this Python has no venv/ensurepip; install them with your system's package manager")
    if os.geteuid() != 0:
        fail("this Python has no venv/ensurepip; run: sudo apt-get install -y " + package)
    say("installing %s with apt-get (this Python cannot make virtual environments without it)" % package)
    install = ["apt-get", "install", "-y", "--no-install-recommends", package]
    if subprocess.run(install, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        run(["apt-get", "update"], "apt-get update")
        run(install, " ".join(install))
    if not have_ensurepip():
        fail("%s still has no ensurepip after apt-get install %s" % (sys.executable, package))


def python_line():
    return "python " + sys.version.replace("\n", " ") + " at " + ROOT


def make_venv():
    """A .venv that was made by another Python, or for another place, starts anew."""
    if stamp_lines()[:1] == [python_line()] and os.access(PYTHON, os.X_OK):
        return
    require_venv_module()
    say("making .venv with Python %d.%d.%d" % sys.version_info[:3])
    run([sys.executable, "-m", "venv", "--clear", VENV], "python -m venv")


def install(level):
    started = time.monotonic()
    make_venv()
    constraints = os.path.join("constraints", level + ".txt")
    say("installing %s (pinned, hash-checked)" % constraints)
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--retries", "5"]
    run(pip + ["--require-hashes", "-r", constraints], "pip install -r " + constraints)
    run(pip + ["--no-deps", "--no-build-isolation", "-e", "."], "pip install -e .")
    lines = [python_line()] + wanted_stamp(level)
    with open(STAMP + ".new", "w") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(STAMP + ".new", STAMP)
    say("ready after %.0f s" % (time.monotonic() - started))


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in LEVELS:
        fail("usage: bootstrap.py " + "|".join(LEVELS))
    level = sys.argv[1]
    find_python()
    if is_ready(level):
        return
    # Two makes at the same time share one .venv: the second waits and then finds it done.
    with open(os.path.join(ROOT, ".bootstrap.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_ready(level):
            install(level)


if __name__ == "__main__":
    main()

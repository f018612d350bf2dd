"""Install packages with uv, or with pip where uv cannot: ``install.py PYTHON ARGUMENT...``.

uv takes a third of pip's time, but reads none of pip's configuration. What that says about the index is passed on.
PYTHON is the interpreter of the environment; the arguments are those that `uv pip install` and `pip install` share.
"""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

# pip's settings, and the variables by which uv reads the same. Where pip separates values by white space, so does uv,
# except between links.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "keyring-provider": "UV_KEYRING_PROVIDER",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
    "cert": "SSL_CERT_FILE",
    "client-cert": "SSL_CLIENT_CERT",
    "proxy": "ALL_PROXY",
}
# Like pip, uv then takes each file from whichever index has it. Hashes say which file that must be.
LIKE_PIP = {"UV_INDEX_STRATEGY": "unsafe-best-match", "UV_SYSTEM_CERTS": "1"}


def pip_settings() -> dict[str, str]:
    """Return the settings of `pip install`, from its files and from the environment."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    # A pip that is told to be quiet lists nothing.
    environment = {**os.environ, "PIP_QUIET": "0"}
    listing = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout
    found = dict(line.split("=", 1) for line in listing.splitlines() if "=" in line)
    return {
        key.removeprefix(section): ast.literal_eval(value)
        for section in ("global.", "install.", ":env:.")
        for key, value in found.items()
        if key.startswith(section)
    }


def uv_variables(settings: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which uv reads what these settings tell pip; variables of uv's own stay."""
    bundle = environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    told = {**({"cert": bundle} if bundle else {}), **settings}
    values = {
        variable: ("," if key == "find-links" else " ").join(told[key].split())
        for key, variable in VARIABLES.items()
        if told.get(key)
    }
    own = {name: value for name, value in environment.items() if name.startswith("UV_")}
    return {**environment, **LIKE_PIP, **values, **own}


def install(python: str, arguments: list[str]) -> int:
    """Run uv, then pip if that fails; return the exit status. Without a terminal, print only errors."""
    is_quiet = not sys.stderr.isatty() or "--quiet" in arguments
    arguments = [argument for argument in arguments if argument != "--quiet"]
    settings = pip_settings()
    uv = Path(sys.executable).parent / "uv"
    if uv.exists():
        no_index = ["--no-index"] if settings.get("no-index", "").lower() in ("1", "true", "yes", "on") else []
        command = [uv, "pip", "install", *["--quiet"] * is_quiet, *no_index, "--python", python, *arguments]
        if subprocess.run(command, env=uv_variables(settings, os.environ), check=False).returncode == 0:
            return 0
        print("uv could not install this; pip tries, which takes longer.", file=sys.stderr, flush=True)
    # As uv does it: most modules never run, and Python compiles the others as it imports them.
    compiling = [] if os.environ.get("UV_COMPILE_BYTECODE") else ["--no-compile"]
    options = [*["-qq"] * is_quiet, "--no-input", "--disable-pip-version-check", *compiling]
    pip = [sys.executable, "-m", "pip", "--python", python, "install"]
    return subprocess.run([*pip, *options, *arguments], check=False).returncode


def stop(number: int, frame: object) -> None:
    """Leave `subprocess.run` by an exception, at which it ends its child."""
    sys.exit(128 + number)


def main() -> None:
    """Install what the command line says."""
    signal.signal(signal.SIGTERM, stop)
    try:
        sys.exit(install(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    main()

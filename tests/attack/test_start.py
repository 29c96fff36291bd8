"""How Stockade starts: what a hostile working directory can do to it."""

import subprocess
import sys
from pathlib import Path

LAYERS = ("policy", "proxy", "firewall", "sandbox", "browser", "stockade")


def test_no_file_of_the_working_directory_is_loaded(tmp_path: Path) -> None:
    trap = "raise SystemExit('a file of the working directory was loaded')\n"
    for name in [
        *LAYERS,
        "typing",
        "socket",
        "typer",
        "enum",
        "tomllib",
        "dns",
        "site",
        "usercustomize",
        "sitecustomize",
        "re",
    ]:
        (tmp_path / f"{name}.py").write_text(trap)
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(trap)
    for arguments in (["--help"], ["run", "--help"], ["proxy", "--help"], ["policy", "--help"], ["demo", "--help"]):
        done = subprocess.run(
            [sys.executable, "-I", "-m", "stockade", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "was loaded" not in done.stdout + done.stderr
        assert done.returncode == 0, done.stderr
    control = subprocess.run([sys.executable, "-m", "re"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert "was loaded" in control.stdout + control.stderr, "the trap must bite where nothing protects"

"""The system's Chromium or Chrome: its path, its version, for which it is started with ``--version``, and its flags."""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LEAST = 120
"""Minimum major version: what Playwright's protocol needs, with a margin."""
INSTALL = "apt-get install -y chromium, or name another one with --chromium-executable"


class NoChromium(RuntimeError):
    """Raised if Chromium is missing or too old. The message is one line with the command that installs it."""


def executable(setting: str = "") -> Path:
    """Path of the Chromium or Chrome at ``setting``, or on the PATH if that is empty. Runs it once for its version.
    Raises NoChromium if it is missing or too old."""
    path = setting or next((spot for name in NAMES if (spot := shutil.which(name))), "")
    if not path:
        raise NoChromium(f"no Chromium is installed: {INSTALL}")
    if not Path(path).is_file():
        raise NoChromium(f"--chromium-executable {path}: not there: {INSTALL}")
    version = version_of(path)
    if version < LEAST:
        raise NoChromium(f"{path} is of version {version or 'unknown'}, expected {LEAST} or newer: {INSTALL}")
    return Path(path)


@cache
def version_of(program: str) -> int:
    """Return the major version that a program reports; 0 if it does not start, answer or report one."""
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r"(\d+)\.\d+\.\d+", done.stdout)
    return int(match[1]) if match else 0


_OF_PLAYWRIGHT = (
    *("AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay"),
    *("MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch"),
    *("TcpPortRandomizationWin", "ThirdPartyStoragePartitioning", "msEdgeUpdateLaunchServicesPreferredVersion"),
    "msForceBrowserSignIn",
)
"""Features that Playwright switches off itself. They are repeated, because Chromium only obeys the last such switch."""
_COSTLY = (
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "WebUIOmniboxFullPopup"),
    "SpareRendererForSitePerProcess",  # a process for each context in case that it goes to another site
)
FLAGS = (
    *("--disable-gpu", "--disable-dev-shm-usage", "--disable-extensions", "--mute-audio", "--no-first-run"),
    *("--disable-component-update", "--disable-sync", "--disable-breakpad", "--disable-domain-reliability"),
    *("--force-webrtc-ip-handling-policy=disable_non_proxied_udp", "--js-flags=--max-old-space-size=1024"),
    f"--disable-features={','.join((*_OF_PLAYWRIGHT, *_COSTLY))}",
)
"""Switches besides Playwright's own, which save resources and change nothing that a page shows. With the popups of the
address bar, each browser context has one more process, and opening one takes three times the processor time."""

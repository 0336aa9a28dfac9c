"""Command-line switches of Chromium besides Playwright's own. They save resources and change nothing that a page shows.

Without them the window of each browser context loads the pages of the address bar's suggestions: one more process, and
two thirds of the processor time of opening a context.
"""

from __future__ import annotations

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

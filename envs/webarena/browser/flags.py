"""What Chromium is started with besides Playwright's own switches: nothing that a page shows, all that costs.

Each context has a window of its own, hidden as it is, and each window loads the pages that an address bar would open:
a process and two thirds of the processor time of opening a context, for what nobody sees. Knows no browser that runs.
"""

from __future__ import annotations

_OF_PLAYWRIGHT = (
    *("AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync"),
    *("DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades", "LensOverlay"),
    *("MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding", "PreconnectToSearch"),
    *("TcpPortRandomizationWin", "ThirdPartyStoragePartitioning", "msEdgeUpdateLaunchServicesPreferredVersion"),
    "msForceBrowserSignIn",
)
"""What Playwright turns off itself: of several such switches Chromium knows the last one alone."""
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

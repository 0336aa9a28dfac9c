"""Bundles kept in a bucket: the same bytes, or a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.bundles.host_cache import unpacked_bundle
from lemur_ray.storage.bundles.store import fetch, publish
from tests.storage.bucket_server import Service


@pytest.fixture
def bundle(google: Service, tmp_path: Path, lemur_home: Path) -> Bundle:
    """Of a folder that has been moved away since."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_bytes(bytes(range(256)) * 400)
    found = publish(tmp_path / "data", "gs://bucket/store")
    (tmp_path / "data").rename(tmp_path / "moved")
    return found


@pytest.mark.parametrize("trouble", [{}, {"truncate": 5000}, {"status": 503}], ids=["none", "truncate", "503"])
def test_a_bundle_comes_back_whole_whatever_passing_trouble_there_is(
    google: Service, bundle: Bundle, tmp_path: Path, trouble: dict[str, int]
) -> None:
    assert bundle.url == f"gs://bucket/store/bundles/{bundle.digest}.tar"
    if trouble:
        google.trouble(match="GET .*media|GET /download", **trouble)
    assert (unpacked_bundle(bundle, fetch, pause_s=0.0) / "x").read_bytes() == bytes(range(256)) * 400
    assert publish(tmp_path / "moved", "gs://bucket/store") == bundle


def test_a_bucket_that_refuses_and_one_that_is_not_there_are_named(
    google: Service, bundle: Bundle, tmp_path: Path
) -> None:
    with pytest.raises(
        BundleError, match=r"LEMUR_STORE=gs://nowhere cannot take the \d+ bytes of .*moved .*it must be there"
    ):
        publish(tmp_path / "moved", "gs://nowhere")
    google.trouble(match="GET", status=403, times=1000)
    with pytest.raises(BundleError, match=r"gs://bucket/store/bundles/.*(Forbidden|403).*"):
        unpacked_bundle(bundle, fetch, pause_s=0.0)

#!/bin/bash
# Builds the image without a daemon: deploy/image/build.sh [broker|spark]
#
# Needs root, and buildah; with BASE=... the image that it begins with, else debootstrap, which makes one of Debian 12.
# Everything is below build/image; the result is build/image/stratalog-TARGET.tar, an OCI archive for `skopeo copy`,
# `podman load` or `docker load`.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=${1:-broker}
folder=$PWD/build/image

lacks() { echo "make image needs $1 (on Debian: apt-get install $2)" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "make image needs root: buildah's chroot isolation, and debootstrap" >&2; exit 1; }
command -v buildah > /dev/null || lacks buildah buildah
mkdir -p "$folder"
tool() { buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver vfs "$@"; }

if [ -z "${BASE:-}" ]; then
  BASE=localhost/stratalog-base
  if ! tool inspect --type image $BASE > /dev/null 2>&1; then
    command -v debootstrap > /dev/null || lacks debootstrap debootstrap
    rm -rf "$folder/base"
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv,tini bookworm "$folder/base" > "$folder/debootstrap.log"
    rm -rf "$folder"/base/var/cache/apt/* "$folder"/base/var/lib/apt/lists/* "$folder"/base/usr/share/{doc,man,locale,info}/*
    made=$(tool from scratch)
    tool add "$made" "$folder/base" / > /dev/null
    tool commit --quiet "$made" $BASE > /dev/null
    tool rm "$made" > /dev/null
    rm -rf "$folder/base"
  fi
fi

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' stratalog/__init__.py)
arguments=(--build-arg "BASE=$BASE" --build-arg "VERSION=$version" --build-arg "CREATED=$(date -u +%Y-%m-%dT%H:%M:%SZ)")
arguments+=(--build-arg "REVISION=$(git rev-parse HEAD 2> /dev/null || echo unknown)")
[ -z "${PIP_INDEX_URL:-}" ] || arguments+=(--build-arg "PIP_INDEX_URL=$PIP_INDEX_URL")
# A certificate authority of one's own, as behind a proxy.
[ -z "${PIP_CERT:-}" ] || arguments+=(--volume "$PIP_CERT:/pip-ca.pem:ro" --build-arg PIP_CERT=/pip-ca.pem)
tool bud --isolation chroot --pull-never --layers --target "$target" -f deploy/image/Dockerfile -t "localhost/stratalog:$target" \
  "${arguments[@]}" .
archive=$folder/stratalog-$target.tar
rm -f "$archive"
tool push --quiet "localhost/stratalog:$target" "oci-archive:$archive:stratalog:$version" > /dev/null
echo "localhost/stratalog:$target: $(($(stat -c %s "$archive") / 1000000)) MB compressed, $archive"

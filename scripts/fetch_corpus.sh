#!/usr/bin/env bash
# Makes a real English-French corpus and an English text corpus from Debian packages; installs nothing.
#
#   scripts/fetch_corpus.sh [--out DIR] [--cache DIR] [--pairs-only] [--refresh]
#
# DIR (default corpus/) gets {train,dev,test}.{en,fr,docs}: line i of .en translates line i of .fr, .docs names its
# document with the origin in front (ddtp: lohelp: man: gcc: lo: dref:); lm/{train,dev,test}.{txt,docs}; manifest.json
# with packages, versions, counts and SHA-256 sums. Downloads stay in the cache (default DIR/cache), so a second run is
# quick and a broken one goes on where it stopped. --refresh asks for newer lists and packages.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out="$root/corpus" cache="" pairs_only=() refresh=0
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; }
while [ $# -gt 0 ]; do
  case "$1" in
    --out) out=${2:?--out needs a folder}; shift ;;
    --cache) cache=${2:?--cache needs a folder}; shift ;;
    --pairs-only) pairs_only=(--pairs-only) ;;
    --refresh) refresh=1 ;;
    -h|--help) usage; exit 0 ;;
    *) echo "fetch_corpus.sh: unknown argument '$1'" >&2; usage >&2; exit 64 ;;
  esac
  shift
done
mkdir -p "$out"
out=$(cd "$out" && pwd)
cache=${cache:-$out/cache}
mkdir -p "$cache"/{debs,partial,lists/partial,apt/archives/partial}
cache=$(cd "$cache" && pwd)
for tool in apt-get dpkg-deb python3; do
  command -v "$tool" >/dev/null || { echo "fetch_corpus.sh: needs $tool (a Debian system with python3)" >&2; exit 69; }
done

# A private configuration, read after the system's own: images for containers often switch the translations off.
cat > "$cache/apt.conf" <<CONF
#clear Acquire::Languages;
Acquire::Languages { "en"; "fr"; };
Acquire::Retries "3";
APT::Sandbox::User "root";
Dir::State::lists "$cache/lists";
Dir::Cache "$cache/apt";
CONF

have_lists() { compgen -G "$cache/lists/*_i18n_Translation-fr*" >/dev/null && [ -e "$cache/lists.complete" ]; }
if [ $refresh -eq 1 ] || ! have_lists; then
  echo "fetching the package lists"
  rm -f "$cache/lists.complete"
  apt-get -c "$cache/apt.conf" -qq update
  touch "$cache/lists.complete"
fi
have_lists || { echo "fetch_corpus.sh: apt gave no French package descriptions (Translation-fr); is the 'main' archive in sources.list?" >&2; exit 69; }

# One at a time into partial/, then moved: what stands in debs/ is whole.
mapfile -t packages < <(python3 "$root/scripts/corpus/build_corpus.py" --cache "$cache" --out "$out" --print-packages "${pairs_only[@]}")
for package in "${packages[@]}"; do
  if [ $refresh -eq 0 ] && compgen -G "$cache/debs/${package}_*.deb" >/dev/null; then continue; fi
  echo "downloading $package"
  rm -rf "$cache/partial" && mkdir -p "$cache/partial"
  (cd "$cache/partial" && apt-get -c "$cache/apt.conf" -qq download "$package")
  dpkg-deb --info "$cache/partial/"*.deb >/dev/null
  rm -f "$cache/debs/${package}_"*.deb
  mv "$cache/partial/"*.deb "$cache/debs/"
done

python3 "$root/scripts/corpus/build_corpus.py" --cache "$cache" --out "$out" "${pairs_only[@]}"
python3 "$root/scripts/corpus/check_corpus.py" "$out"

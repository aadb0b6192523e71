#!/bin/sh
# Builds the commands in build/sbom, and writes for each what it is built from, as CycloneDX. It fails if a
# list lacks a module of the program, or the standard library.
set -eu
cd "$(dirname "$0")/.."
go=${GO:-go}
out=build/sbom
mkdir -p $out
"$go" build -buildvcs=true -o $out/ ./cmd/...
for program in rdmactl rdmabench rdmacached; do
	list=$out/$program.cdx.json
	"$go" run github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0 bin -json -std -noserial -output $list $out/$program
	"$go" version -m $out/$program | awk '$1 == "dep" || $1 == "=>" { print $2 "@" $3 }' >$out/$program.modules
	while read -r module; do
		grep -q "\"purl\": \"pkg:golang/$module?" $list || { echo "sbom.sh: $list lacks $module" >&2; exit 1; }
	done <$out/$program.modules
	grep -q '"purl": "pkg:golang/std@' $list || { echo "sbom.sh: $list lacks the standard library" >&2; exit 1; }
	echo "$list: $(wc -l <$out/$program.modules) modules"
done

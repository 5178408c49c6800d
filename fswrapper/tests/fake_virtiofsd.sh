#!/bin/sh
# Stands where virtiofsd is: says what it was given and what it would share.
for arg; do printf 'arg %s\n' "$arg"; done
for arg; do dir=$arg; done
cd "$dir" || exit 1
for entry in *; do
    if [ -d "$entry" ]; then echo "$entry: $(ls "$entry" | xargs)"; else echo "$entry: $(cat "$entry")"; fi
    # The file itself, or one in the directory.
    to=$entry
    [ -d "$entry" ] && to=$entry/new
    if why=$( (: >>"$to") 2>&1); then
        echo "$entry is written to"
        [ "$to" = "$entry" ] || rm "$to"
    else
        echo "$entry: ${why##*: }"
    fi
done
if mkdir more 2>/dev/null; then echo "the guest makes entries"; fi

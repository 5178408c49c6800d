#!/bin/sh
# Stands where virtiofsd is: says what it was given and what it would share.
for arg; do printf 'arg %s\n' "$arg"; done
for arg; do dir=$arg; done
cd "$dir" || exit 1
for entry in *; do
    if [ -d "$entry" ]; then echo "$entry: $(ls "$entry" | xargs)"; else echo "$entry: $(cat "$entry")"; fi
    if (: >"$entry/new") 2>/dev/null; then echo "$entry is written to"; rm "$entry/new"; fi
done
if mkdir more 2>/dev/null; then echo "the guest makes entries"; fi

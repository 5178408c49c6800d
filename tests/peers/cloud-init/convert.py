"""Runs `cloud-init devel net-convert` with each list of words in the file that it is given, in one process: importing cloud-init
takes longer than converting. Prints how those that failed did, by their places. Both are JSON."""

import json
import sys
import traceback

from cloudinit.cmd.devel import net_convert

failed = {}
for place, words in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))):
    try:
        net_convert.handle_args("net-convert", net_convert.get_parser().parse_args(words))
    except (Exception, SystemExit):
        failed[place] = traceback.format_exc()
json.dump(failed, sys.stdout)

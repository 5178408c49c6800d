"""Has cloud-init take the seeds below the directories that it is given, as it would at the first boot of a guest, but for the
modules that act on a guest. Prints what it would act on, as JSON: for each directory its user-data in base64, the files that it
would write, and the text of what it would run."""

import base64
import json
import os
import sys
from pathlib import Path

from cloudinit import sources, stages
from cloudinit.helpers import ConfigMerger
from cloudinit.settings import PER_INSTANCE


def consume(root):
    os.environ["CLOUD_CFG"] = str(root / "cloud.cfg")
    init = stages.Init(ds_deps=[sources.DEP_FILESYSTEM])
    init.read_cfg()
    init.initialize()
    init.fetch(existing="check")
    init.instancify()
    init.update()
    init.setup_datasource()
    init.consume_data(PER_INSTANCE)
    config = ConfigMerger(paths=init.paths, datasource=init.datasource, base_cfg=init.cfg).cfg
    instance = root / "lib" / "instance"
    run = [path.read_text() for kind in ["scripts", "boothooks"] for path in sorted((instance / kind).glob("*"))]
    return {
        "user_data": base64.b64encode((instance / "user-data.txt").read_bytes()).decode(),
        "files": [entry["path"] for entry in config.get("write_files", [])],
        "runs": run + [str(command) for command in config.get("runcmd", [])],
    }


json.dump([consume(Path(root)) for root in sys.argv[1:]], sys.stdout)

//! Pods that begin with a checkpoint of their image's boot beside pods of the same image that boot.

use std::fs;

use anyhow::{Result, ensure};
use tests::agent_image::{BOOTS, tiny_with_agent};
use tests::case::Bed;
use tests::cri;
use tests::image_server::Fault;
use tests::node::Node;

use super::checkpoint::to_answer;
use super::report::{Pair, Row};
use super::start::{remove, start_for};

const PAIRS: usize = 5;
const CONFIG: &str = "/etc/virtlet/controld.toml";
const HANDLERS: &str = "\n[handlers.warm]\nguest_agent = true\nwarm = true\n[handlers.cold]\nguest_agent = true\n";

pub(super) fn rows(bed: &Bed, node: &mut Node) -> Result<Vec<Row>> {
    let image = node.images.offer("agent.qcow2", &tiny_with_agent(bed)?, Fault::None);
    let before = fs::read_to_string(CONFIG)?;
    fs::write(CONFIG, format!("{before}{HANDLERS}"))?;
    node.restart_controld()?;
    node.cri.pull(&image)?;
    let container = cri::container(&image, [].into());
    // What the others begin with.
    let (_, vm) = start_for(node, &container, "warm")?;
    vm.wait_up()?;
    remove(node, &vm)?;
    fs::remove_file(&vm.log)?;
    let mut pairs = Vec::new();
    for _pair in 0..PAIRS {
        let [ours, baseline] = ["warm", "cold"].map(|handler| {
            let (micros, vm) = start_for(node, &container, handler)?;
            let log = vm.log.clone();
            let until = to_answer(node, (micros, vm))?;
            let said = fs::read_to_string(&log)?;
            fs::remove_file(log)?;
            ensure!(said.contains(BOOTS) == (handler == "cold"), "a pod of handler `{handler}` has said:\n{said}");
            Ok(until / 1000.0)
        });
        pairs.push(Pair { ours: ours?, baseline: baseline? });
    }
    Ok(vec![Row { name: "StartContainer to HTTP, warm / booted", unit: "ms", target: Some(0.2), pairs }])
}

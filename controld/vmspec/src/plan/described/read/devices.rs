//! Reads what is described of devices beside disks and NICs.

use proto::vm::{Devices, Input, PanicDevice};

use super::super::devices::{DescribedDevices, IoThreads, PanicModel, TabletBus, VideoModel, WatchdogAction};
use super::{NotDescribed, Result, holds};

/// What is read, and what is left of it, by which no machine is made.
pub(super) fn devices(said: Devices) -> Result<(DescribedDevices, Devices)> {
    let Devices { graphics, video, inputs, watchdog, panic_devices, block_multi_queue, io_threads, .. } = said.clone();
    // A NIC on the pod's network every machine has, and none has devices of before virtio 1.0.
    let kept = |value: Option<bool>, usual: bool| value.filter(|value| *value != usual);
    let rest = Devices {
        pod_interface: kept(said.pod_interface, true),
        virtio_transitional: kept(said.virtio_transitional, false),
        ..Devices::default()
    };
    let word = |word: &str| word.to_owned();
    let video = video.map(|video| {
        let why = "is none of `vga`, `virtio` and `bochs`, which this release makes screens with";
        VideoModel::of(&video.model).ok_or(NotDescribed::Wrong("devices.video.type", why))
    });
    let action = watchdog.map(|watchdog| {
        let action = watchdog.i6300esb.action.unwrap_or_else(|| word(WatchdogAction::Reset.word()));
        let why = "is none of `reset`, `poweroff` and `shutdown`";
        WatchdogAction::of(&action).ok_or(NotDescribed::Wrong("devices.watchdog.i6300esb.action", why))
    });
    let threads = io_threads.map(|threads| {
        IoThreads::of(&threads).ok_or(NotDescribed::Wrong("devices.ioThreads", "is neither `shared` nor `auto`"))
    });
    let video = video.transpose()?;
    holds(
        video.is_none() || graphics != Some(false),
        "devices.video",
        "is of a screen, which `devices.graphics` is against",
    )?;
    let devices = DescribedDevices {
        graphics,
        video,
        tablet: tablet(&inputs)?,
        watchdog: action.transpose()?,
        panic: panic(&panic_devices)?,
        one_block_queue: block_multi_queue == Some(false),
        one_nic_queue: said.network_multi_queue == Some(false),
        no_serial: said.serial_console == Some(false),
        no_balloon: said.mem_balloon == Some(false),
        io_threads: threads.transpose()?,
    };
    Ok((devices, rest))
}

fn tablet(inputs: &[Input]) -> Result<Option<TabletBus>> {
    let field = "devices.inputs";
    holds(inputs.len() <= 1, field, "are more than one, and a machine has one at most")?;
    let Some(Input { name: _, bus, kind }) = inputs.first() else { return Ok(None) };
    holds(kind == "tablet", "devices.inputs[0].type", "is not `tablet`")?;
    let bus = if bus.is_empty() { TabletBus::Usb.word() } else { bus };
    let why = "is neither `usb` nor `virtio`";
    TabletBus::of(bus).map(Some).ok_or(NotDescribed::Wrong("devices.inputs[0].bus", why))
}

/// Those that not every machine has.
fn panic(devices: &[PanicDevice]) -> Result<Vec<PanicModel>> {
    let mut all = Vec::new();
    for PanicDevice { model } in devices {
        let model = match model.as_deref() {
            None | Some("pvpanic") => continue,
            Some(model) => PanicModel::of(model),
        };
        let why = "have a model that is none of `pvpanic`, `isa` and `hyperv`";
        let model = model.ok_or(NotDescribed::Wrong("devices.panicDevices", why))?;
        holds(!all.contains(&model), "devices.panicDevices", "have one model twice")?;
        all.push(model);
    }
    Ok(all)
}

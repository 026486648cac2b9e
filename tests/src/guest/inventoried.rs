//! A drive that an inventory names, as `tentpeg hil test --inventory` has it: refused until everything says that it may
//! be overwritten, and with its label again afterwards.

use std::sync::Arc;

use tentpeg_driver::controller::{Controller, ControllerConfig};
use tentpeg_engine::OpenOptions;
use tentpeg_engine::administration::Administration;
use tentpeg_engine::label::NewLabel;
use tentpeg_engine::ownership::lock::LockFolder;
use uuid::Uuid;

use super::checks::Functions;
use super::open_function;
use crate::device_tests::{Ending, Verdict, ensure, list};
use crate::hil::hardware::Drive;
use crate::hil::inventory::{Entry, Inventory};

/// Tests that overwrite both ends of a namespace.
const TESTS: [&str; 3] =
    ["first and last block are read back", "a controller that is enabled again keeps its data", "a queue of 3 entries"];

pub(super) fn inventoried(functions: &Functions) -> Verdict {
    let Functions { sysfs, settings, second, .. } = functions;
    let options = OpenOptions {
        locks: Some(LockFolder::at("/tmp/locks")),
        node: Some(Uuid::from_u128(1)),
        ..OpenOptions::default()
    };
    let function = open_function(sysfs, *second, settings.way)?;
    let controller = Controller::enable(function as Arc<_>, ControllerConfig::default())?;
    let serial = controller.identify().serial_number().into_owned();
    controller.shutdown()?;
    let inventory = |serial: &str| Inventory {
        way: Some(settings.way),
        controllers: vec![Entry { address: *second, serial: serial.to_owned() }],
    };
    let refused = |serial: &str, reason: &str| {
        let ended = Drive::all(sysfs, &inventory(serial), &options).err().map(|ending| ending.to_string());
        ensure(ended.as_ref().is_some_and(|text| text.contains(reason)), || {
            format!("{ended:?} does not say {reason:?}")
        })
    };
    let uri = format!("pci:{second},way={},overwrite", settings.way.word());
    let open = || Administration::open_with(uri.as_str(), &options);

    refused(&serial, "has no label: ")?;
    let mut device = open()?;
    let label = device.create_label(&NewLabel::default())?;
    device.close()?;
    refused(&serial, "does not say that it may be overwritten: ")?;
    let mut device = open()?;
    let (mut label_now, mut blocks) = device.change()?;
    label_now.set_may_be_overwritten(&mut *blocks, true)?;
    drop(blocks);
    device.look_again()?;
    let whole = slots(&device);
    device.close()?;
    refused("another", "and the inventory says \"another\"")?;

    let mut drives = Drive::all(sysfs, &inventory(&serial), &options)?;
    let drive = drives.pop().ok_or_else(|| Ending::Failed("no drive".to_owned()))?.take()?;
    for name in TESTS {
        let test = list().into_iter().find(|test| test.name == name);
        test.ok_or_else(|| Ending::Failed(format!("no test {name:?}")))?.run(drive.tier())?;
    }
    let device = open()?;
    ensure(slots(&device) != whole, || format!("the tests have left the label as it was: {whole}"))?;
    device.close()?;
    drive.give_back()?;
    let mut device = open()?;
    let found = device.label()?.device();
    ensure(found == label.device() && slots(&device) == whole, || format!("{found}: {}, not {whole}", slots(&device)))?;
    device.erase_label()?;
    Ok(device.close()?)
}

/// What the four slots of a label hold, in words.
fn slots(device: &Administration) -> String {
    format!("{:?}", device.findings())
}

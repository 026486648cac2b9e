//! `tentpeg info`: what a device says of itself, what fits into its commands, and its health; or what a GPU is, and how devices
//! reach its memory.

mod gpu;

use clap::Args;
use tentpeg_driver::bus::Sysfs;
use tentpeg_driver::controller::ControllerError;
use tentpeg_driver::gpu::LibraryError;
use tentpeg_driver::spec::identify::{IdentifyNamespace, Oncs, Rescap};
use tentpeg_driver::spec::log::SmartLog;
use tentpeg_engine::administration::{Administration, AdministrationError};
use tentpeg_engine::foreign::ForeignContents;
use tentpeg_engine::label::SegmentEntry;
use tentpeg_engine::{ByteSize, DeviceInfo};
use thiserror::Error;

use crate::device::{DeviceError, refuse_to_create};
use crate::memory_place::Place;
use crate::report::{Row, Value};

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct InfoArgs {
    /// The device, such as model:size=4GiB, or model:path=FILE for one in a file that exists; or a GPU, such as cuda:0
    pub device: String,
    /// Print one JSON object, with sizes in bytes, instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Why there is nothing to show.
#[derive(Debug, Error)]
pub enum InfoError {
    /// The device was not opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// What is on the device was not seen.
    #[error(transparent)]
    Administration(#[from] AdministrationError),
    /// The device did not answer, or did not close.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// The text has the form of a GPU and names none.
    #[error("'{}' names no GPU: write cuda: and the GPU's number, such as cuda:0", .0.escape_debug())]
    GpuNumber(String),
    /// The GPU was not opened.
    #[error(transparent)]
    Gpu(#[from] LibraryError),
}

/// Opens the device, asks, and closes it. Never creates a file. A GPU is told with the controllers of `sysfs`.
///
/// # Errors
/// [`InfoError`].
pub fn run(sysfs: &Sysfs, args: &InfoArgs) -> Result<Vec<Row>, InfoError> {
    if args.device.starts_with("cuda:") {
        return match args.device.parse() {
            Ok(Place::Cuda(ordinal)) => Ok(gpu::run(sysfs, ordinal)?),
            _ => Err(InfoError::GpuNumber(args.device.clone())),
        };
    }
    refuse_to_create("info", &args.device)?;
    let mut device = Administration::open(&args.device).map_err(DeviceError::from)?;
    let mut rows = identity(device.info());
    rows.extend(foreign(device.foreign()));
    rows.extend(label(&mut device));
    rows.extend(fencing(device.info()));
    rows.extend(limits(device.info()));
    rows.extend(health(&device.smart_log()?));
    device.close()?;
    Ok(rows)
}

fn identity(info: &DeviceInfo) -> Vec<Row> {
    let (controller, namespace) = (&info.controller, &info.namespace);
    let text = |text: &str| Value::Text(text.to_owned());
    let mut rows = vec![
        Row::both("device", "device", text(&info.name)),
        Row::both("model_number", "model number", text(&controller.model_number())),
        Row::both("serial_number", "serial number", text(&controller.serial_number())),
        Row::both("firmware_revision", "firmware revision", text(&controller.firmware_revision())),
        Row::both("nvme_version", "NVMe version", Value::Text(info.version.to_string())),
        Row::both("nsid", "namespace", Value::Count(info.nsid.into())),
        Row::both("capacity_bytes", "capacity", Value::Bytes(info.limits.capacity())),
        Row::both("blocks", "logical blocks", Value::Count(info.limits.nsze())),
        Row::both("block_bytes", "logical block", Value::Bytes(info.limits.lba_size())),
        Row::both("lba_format", "LBA format", Value::Count(namespace.format_index() as u64)),
    ];
    rows.extend(identifier(&namespace.nguid).map(|nguid| Row::both("nguid", "NGUID", Value::Text(nguid))));
    rows.extend(identifier(&namespace.eui64).map(|eui64| Row::both("eui64", "EUI64", Value::Text(eui64))));
    rows.extend([
        Row::both("writable", "writable", Value::Flag(info.writable)),
        Row::both("keeps_data", "keeps data", Value::Flag(info.moves_data)),
        Row::both("volatile_write_cache", "volatile write cache", Value::Flag(controller.vwc.present())),
    ]);
    rows
}

fn limits(info: &DeviceInfo) -> Vec<Row> {
    let mut rows = Vec::new();
    match info.controller.max_data_transfer_size(info.cap) {
        Some(bytes) => rows.push(Row::both("mdts_bytes", "MDTS", Value::Bytes(bytes))),
        None => rows.push(Row::table("MDTS", Value::Text("no limit".to_owned()))),
    }
    rows.extend([
        Row::both("max_command_bytes", "largest command", Value::Bytes(info.limits.max_transfer())),
        Row::both("max_command_blocks", "blocks of it", Value::Count(info.limits.max_blocks().into())),
        Row::both("page_bytes", "memory page", Value::Bytes(info.limits.page_size())),
        Row::both("memory_alignment_bytes", "memory alignment", Value::Bytes(MEMORY_ALIGNMENT)),
        Row::both("max_queue_entries", "largest queue", Value::Count(info.cap.mqes().count().into())),
        Row::both("queue_pairs", "queue pairs granted", Value::Count(info.queue_pairs.into())),
        Row::both("depth", "commands in flight", Value::Count(info.depth as u64)),
        Row::both("ready_timeout_ns", "ready timeout", Value::Elapsed(info.cap.timeout())),
    ]);
    rows.extend(boundary(&info.namespace, info.limits.lba_size()));
    rows
}

/// Memory that a PRP may name starts at a dword (Base 2.1, 4.3.1).
const MEMORY_ALIGNMENT: u64 = 4;

fn boundary(namespace: &IdentifyNamespace, block: u64) -> Option<Row> {
    let bytes = u64::from(namespace.noiob).saturating_mul(block);
    (bytes != 0).then(|| Row::both("optimal_io_boundary_bytes", "optimal I/O boundary", Value::Bytes(bytes)))
}

fn health(smart: &SmartLog) -> Vec<Row> {
    let warnings = smart.critical_warning.iter_names().map(|(name, _)| name.to_lowercase().replace('_', " "));
    let warnings: Vec<_> = warnings.collect();
    let shown = if warnings.is_empty() { "none".to_owned() } else { warnings.join(", ") };
    let mut rows = vec![
        Row::table("critical warnings", Value::Text(shown)),
        Row::json("critical_warnings", Value::Texts(warnings)),
    ];
    let celsius = smart.celsius().map(i64::from);
    rows.extend(celsius.map(|celsius| Row::both("temperature_celsius", "temperature", Value::Unit(celsius, "°C"))));
    let percent = |key, label, percent: u8| Row::both(key, label, Value::Unit(percent.into(), "%"));
    rows.extend([
        percent("available_spare_percent", "available spare", smart.available_spare),
        percent("available_spare_threshold_percent", "spare threshold", smart.available_spare_threshold),
        percent("percentage_used", "percentage used", smart.percentage_used),
    ]);
    // In thousands of 512 bytes.
    let data = |units: u128| Value::Bytes(u64::try_from(units.saturating_mul(512_000)).unwrap_or(u64::MAX));
    rows.extend([
        Row::both("data_read_bytes", "bytes read, about", data(smart.data_units_read.get())),
        Row::both("data_written_bytes", "bytes written, about", data(smart.data_units_written.get())),
    ]);
    let large = |key, label, number: u128| Row::both(key, label, Value::Large(number));
    rows.extend([
        large("host_read_commands", "read commands", smart.host_read_commands.get()),
        large("host_write_commands", "write commands", smart.host_write_commands.get()),
        large("power_cycles", "power cycles", smart.power_cycles.get()),
        large("power_on_hours", "power-on hours", smart.power_on_hours.get()),
        large("unsafe_shutdowns", "unsafe shutdowns", smart.unsafe_shutdowns.get()),
        large("media_errors", "media errors", smart.media_and_data_integrity_errors.get()),
        large("error_log_entries", "error log entries", smart.number_of_error_information_log_entries.get()),
    ]);
    rows
}

/// Whether there is a label, whose it is, and its segments; or why it cannot be read.
fn label(device: &mut Administration) -> Vec<Row> {
    let mut rows = vec![Row::both("label", "label", Value::Flag(device.has_label()))];
    if !device.has_label() {
        return rows;
    }
    let label = match device.label() {
        Ok(label) => label,
        Err(error) => {
            rows.push(Row::both("label_error", "label is", Value::Text(error.to_string())));
            return rows;
        }
    };
    let owner = label.owner();
    rows.extend([
        Row::both("owner_node", "owner", Value::Text(owner.node.to_string())),
        Row::both("owner_name", "owner's name", Value::Text(owner.name.escape_debug().to_string())),
        Row::both("owner_epoch", "owner's epoch", Value::Count(owner.epoch)),
    ]);
    let segment = |entry: &SegmentEntry| {
        let bytes = ByteSize(entry.capacity.saturating_mul(label.block_size().into()));
        let part = entry.stripe.as_ref().map(|stripe| format!(", member {} of {}", stripe.index, stripe.members.len()));
        format!("{} ({bytes}, {}{})", entry.name.escape_debug(), entry.durability, part.unwrap_or_default())
    };
    rows.extend(texts("segments", "segments", label.segments().map(segment).collect()));
    rows
}

/// Whether an owner can keep other hosts away.
fn fencing(info: &DeviceInfo) -> [Row; 1] {
    let knows =
        info.controller.oncs.contains(Oncs::RESERVATIONS) && info.namespace.rescap.contains(Rescap::EXCLUSIVE_ACCESS);
    [Row::both("fences_other_hosts", "fences other hosts", Value::Flag(knows))]
}

/// What somebody else has left on the device.
pub fn foreign(found: &[ForeignContents]) -> Vec<Row> {
    texts("foreign_contents", "foreign contents", found.iter().map(ForeignContents::to_string).collect())
}

/// Several texts, of which a table says so where there are none.
fn texts(key: &'static str, label: &'static str, texts: Vec<String>) -> Vec<Row> {
    let shown = if texts.is_empty() { "none".to_owned() } else { texts.join("; ") };
    vec![Row::table(label, Value::Text(shown)), Row::json(key, Value::Texts(texts))]
}

/// An identifier in hexadecimal; all zeroes is none.
fn identifier(bytes: &[u8]) -> Option<String> {
    bytes.iter().any(|byte| *byte != 0).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;

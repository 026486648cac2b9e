//! What a GPU is, whether devices can reach its memory, and how it is placed beside each controller of the machine.

use std::sync::Arc;

use serde_json::json;
use tentpeg_driver::bus::{PciFunction, Sysfs};
use tentpeg_driver::gpu::{Accelerator, Cuda, Gpu, GpuInfo, GpuManagement, LibraryError, WritesOrdering, management};

use crate::gpu::{Pair, Port, Probe, Ways, translation, translation_of};
use crate::report::{Row, Value};

/// Opens GPU `ordinal` and asks.
///
/// # Errors
/// [`LibraryError`]: there is no CUDA, or no such GPU.
pub(super) fn run(sysfs: &Sysfs, ordinal: u32) -> Result<Vec<Row>, LibraryError> {
    let gpu: Arc<dyn Accelerator> = Gpu::open(&Cuda::load()?, ordinal)?;
    let known = management(&gpu.info().pci_address);
    Ok(rows(sysfs, &gpu, known.as_ref()))
}

/// All of it. `known`: what the management library says of the GPU, where it answers.
fn rows(sysfs: &Sysfs, gpu: &Arc<dyn Accelerator>, known: Option<&GpuManagement>) -> Vec<Row> {
    let info = gpu.info();
    let mut rows = vec![
        Row::both("device", "device", Value::Text(format!("cuda:{}", info.ordinal))),
        Row::both("name", "name", Value::Text(info.name.clone())),
        Row::both("pci_address", "PCI address", Value::Text(info.pci_address.clone())),
    ];
    rows.extend(known.map(|known| Row::both("driver_release", "driver release", Value::Text(known.driver.clone()))));
    rows.push(Row::both("cuda_version", "CUDA version", Value::Text(gpu.driver().to_string())));
    rows.extend(identity(info));
    rows.extend(known.into_iter().flat_map(|known| {
        [
            Row::both("bar1_bytes", "BAR1", Value::Bytes(known.bar1_total)),
            Row::both("bar1_free_bytes", "free of BAR1", Value::Bytes(known.bar1_free)),
        ]
    }));
    rows.extend(reach(info));
    rows.extend(surroundings(sysfs, gpu, known.map(|known| known.bar1_free)));
    rows
}

fn identity(info: &GpuInfo) -> [Row; 3] {
    let (major, minor) = info.compute_capability;
    [
        Row::both("memory_bytes", "memory", Value::Bytes(info.memory)),
        Row::both("multiprocessors", "multiprocessors", Value::Count(info.multiprocessors.into())),
        Row::both("compute_capability", "compute capability", Value::Text(format!("{major}.{minor}"))),
    ]
}

/// Whether devices reach its memory, and who sees what they have written.
fn reach(info: &GpuInfo) -> Vec<Row> {
    let ordered = match info.writes_ordering {
        WritesOrdering::Nobody => "nobody",
        WritesOrdering::Owner => "owner",
        WritesOrdering::AllDevices => "all devices",
    };
    let mut rows = vec![
        Row::both("rdma", "reached by devices (RDMA)", Value::Flag(info.rdma)),
        Row::both("writes_ordered_for", "their writes ordered for", Value::Text(ordered.to_owned())),
        Row::both("host_flush", "host can flush them", Value::Flag(info.host_flush)),
        Row::both("dma_buf_export", "dma-buf export", Value::Flag(info.dma_buf)),
    ];
    rows.push(match info.dma_buf_mmap {
        Some(can) => Row::both("dma_buf_mmap", "dma-buf mmap", Value::Flag(can)),
        None => Row::table("dma-buf mmap", Value::Text("not known: the driver is older than the question".to_owned())),
    });
    rows
}

/// The way that a drive's bytes would go, and the controllers of the machine. Of one for which the way is another the table
/// says so; JSON has each controller's.
fn surroundings(sysfs: &Sysfs, gpu: &Arc<dyn Accelerator>, bar1_free: Option<u64>) -> Vec<Row> {
    let mut rows = Vec::new();
    let probe = match Probe::new(gpu, bar1_free) {
        Ok(probe) => Some(probe),
        Err(error) => {
            rows.push(Row::both("way_error", "way is not known", Value::Text(error.to_string())));
            None
        }
    };
    let ways = probe.as_ref().map(|probe| probe.ways(translation(sysfs)));
    if let Some(ways) = &ways {
        rows.push(Row::both("way", "way of a drive's bytes", Value::Text(ways.used.to_string())));
        rows.extend(ways.reasons().map(|reasons| Row::table("why none better", Value::Text(reasons))));
        rows.push(Row::json("ways_closed", Value::Nested(closed(ways))));
    }
    let controllers = match sysfs.nvme_functions() {
        Ok(controllers) => controllers,
        Err(error) => {
            rows.push(Row::both("controllers_error", "controllers", Value::Text(error.to_string())));
            return rows;
        }
    };
    if controllers.is_empty() {
        rows.push(Row::table("controllers", Value::Text("none on the PCI bus".to_owned())));
    }
    let mut objects = Vec::new();
    for controller in &controllers {
        let own = probe.as_ref().map(|probe| probe.ways(translation_of(sysfs, controller)));
        let pair = Pair::of(sysfs, &gpu.info().pci_address, controller);
        rows.extend(of_controller(controller, &pair, own.as_ref().filter(|own| Some(*own) != ways.as_ref())));
        objects.push(object(controller, &pair, own.as_ref()));
    }
    rows.push(Row::json("controllers", Value::Nested(objects.into())));
    rows
}

/// A controller's rows of the table; `ways`: its own, where they are not the GPU's.
fn of_controller(controller: &PciFunction, pair: &Pair, ways: Option<&Ways>) -> Vec<Row> {
    let mut rows = vec![
        Row::table("controller", Value::Text(controller.address.to_string())),
        Row::table("  place", Value::Text(pair.place())),
    ];
    if let Some(told) = pair.access_control() {
        rows.push(Row::table("  ACS", Value::Text(told.text)));
        rows.extend(told.remedy.map(|remedy| Row::table("  remedy", Value::Text(remedy))));
    }
    if let Some(ways) = ways {
        rows.push(Row::table("  way of its bytes", Value::Text(ways.used.to_string())));
        rows.extend(ways.reasons().map(|reasons| Row::table("  why none better", Value::Text(reasons))));
    }
    rows
}

/// A controller in JSON.
fn object(controller: &PciFunction, pair: &Pair, ways: Option<&Ways>) -> serde_json::Value {
    let port = |port: &Port| {
        json!({
            "pci_address": port.address.to_string(),
            "side": port.side.name().to_lowercase(),
            "requests_for_peers": port.redirect().name(),
        })
    };
    let mut object = json!({
        "pci_address": controller.address.to_string(),
        "place": pair.place(),
        "ports": pair.ports().iter().map(port).collect::<Vec<_>>(),
    });
    if let Some(told) = pair.access_control() {
        object["access_control"] = told.text.into();
        if let Some(remedy) = told.remedy {
            object["remedy"] = remedy.into();
        }
    }
    if let Some(ways) = ways {
        object["way"] = ways.used.to_string().into();
        object["ways_closed"] = closed(ways);
    }
    object
}

fn closed(ways: &Ways) -> serde_json::Value {
    let each = |(path, obstacle): &(_, _)| json!({"way": format!("{path}"), "reason": format!("{obstacle}")});
    ways.closed.iter().map(each).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests;

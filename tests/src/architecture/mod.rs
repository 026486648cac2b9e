//! The order of the house: which room may use which, where `unsafe` may stand, and how long a file may be.
//!
//! [`check`] looks at one source file; [`House::read`] finds all of them. Paths are read from the tokens of a file, so
//! grouped imports, paths inside expressions and those inside macros count alike, and comments do not.
//!
//! Test modules (`#[cfg(test)]`) and the folders of integration tests are exempt from the order of rooms: a test may
//! set a queue against the model. They are not exempt from the list of files with `unsafe` and the limit of lines.

mod house;
mod paths;

use std::fmt;

pub use house::{House, SourceFile};
use paths::{Contents, Named};

/// The most lines of a file.
pub const MOST_LINES: usize = 700;

/// The files that may hold `unsafe`, and do.
pub const UNSAFE_FILES: &[&str] = &[
    "driver/src/controller/puppet.rs",
    "driver/src/dma/accelerator.rs",
    "driver/src/dma/address_space.rs",
    "driver/src/dma/barrier.rs",
    "driver/src/dma/caller_memory.rs",
    "driver/src/dma/caller_memory/tests.rs",
    "driver/src/dma/host_memory.rs",
    "driver/src/dma/mover.rs",
    "driver/src/dma/region.rs",
    "driver/src/dma/region/tests.rs",
    "driver/src/dma/view.rs",
    "driver/src/gpu/accelerator.rs",
    "driver/src/gpu/copier/launches.rs",
    "driver/src/gpu/copier/mod.rs",
    "driver/src/gpu/copier/paged.rs",
    "driver/src/gpu/device.rs",
    "driver/src/gpu/direct/bar.rs",
    "driver/src/gpu/direct/gdrdrv.rs",
    "driver/src/gpu/direct/mod.rs",
    "driver/src/gpu/direct/tests.rs",
    "driver/src/gpu/file/cufile.rs",
    "driver/src/gpu/file/host.rs",
    "driver/src/gpu/file/mod.rs",
    "driver/src/gpu/file/uring.rs",
    "driver/src/gpu/kernels/mod.rs",
    "driver/src/gpu/ladder/probe.rs",
    "driver/src/gpu/library/mod.rs",
    "driver/src/gpu/library/symbols.rs",
    "driver/src/gpu/management.rs",
    "driver/src/gpu/memory.rs",
    "driver/src/gpu/mover.rs",
    "driver/src/gpu/provider/cuda.rs",
    "driver/src/gpu/stand_in/copies.rs",
    "driver/src/gpu/stand_in/memory.rs",
    "driver/src/gpu/stand_in/mod.rs",
    "driver/src/gpu/stand_in/tests.rs",
    "driver/src/gpu/stream.rs",
    "driver/src/keeper/serve.rs",
    "driver/src/model/iommu/mod.rs",
    "driver/src/model/iommu/reach.rs",
    "driver/src/model/iommu/tests.rs",
    "driver/src/model/iommu/window.rs",
    "driver/src/model/mover.rs",
    "driver/src/model/prp/tests.rs",
    "driver/src/model/sgl/tests.rs",
    "driver/src/model/store/file.rs",
    "driver/src/model/store/memory.rs",
    "driver/src/model/store/tests.rs",
    "driver/src/model/tests/mover.rs",
    "driver/src/queue/pair/tests.rs",
    "driver/src/queue/prp/tests.rs",
    "driver/src/queue/sgl/tests.rs",
    "driver/src/queue/ring/loom_tests.rs",
    "driver/src/vfio_user/client/space.rs",
    "driver/src/vfio_user/mapping.rs",
    "driver/src/vfio_user/server/memory.rs",
    "driver/src/vfio/bar.rs",
    "driver/src/vfio/ioas.rs",
    "driver/src/vfio/ioctl.rs",
    "driver/src/vfio/ioctl/iommufd.rs",
    "driver/src/vfio/mapping.rs",
    "driver/src/vfio/space.rs",
    "driver/src/vfio/space/tests.rs",
    "engine/src/gpu/proof.rs",
    "engine/src/gpu/proof/tests.rs",
    "engine/src/gpu/words.rs",
    "engine/src/lane/copies.rs",
    "engine/src/lane/tests/gpu.rs",
    "engine/src/lane/tests/gpu_direct.rs",
    "engine/src/memory/own.rs",
    "tests/probes/ring.rs",
    "tests/src/fuzz/lists.rs",
    "tests/src/fuzz/mappings.rs",
    "tests/src/fuzz/model_commands.rs",
    "tests/src/gpu/foreign.rs",
    "tests/src/gpu/rig.rs",
    "tests/src/guest/only_mapped.rs",
    "tests/src/guest/system.rs",
    "tests/src/own_memory.rs",
    "tests/tests/no_allocation.rs",
];

/// A crate of the workspace: its folder, and its name in code.
pub const CRATES: &[(&str, &str)] = &[
    ("driver", "tentpeg_driver"),
    ("engine", "tentpeg_engine"),
    ("ffi", "tentpeg_ffi"),
    ("tools", "tentpeg_tools"),
    ("tests", "tentpeg_tests"),
];

/// The rooms, from the ground up; rooms of one row may not use each other either. A crate with one entry is one room,
/// of which the empty name stands for all.
const ROOMS: &[&[(&str, &str)]] = &[
    &[("tentpeg_driver", "spec")],
    &[("tentpeg_driver", "dma")],
    &[("tentpeg_driver", "bus")],
    &[("tentpeg_driver", "keeper")],
    &[("tentpeg_driver", "vfio"), ("tentpeg_driver", "vfio_user")],
    &[("tentpeg_driver", "gpu")],
    &[("tentpeg_driver", "model")],
    &[("tentpeg_driver", "queue")],
    &[("tentpeg_driver", "controller")],
    &[("tentpeg_engine", "")],
    &[("tentpeg_ffi", "")],
    &[("tentpeg_tools", "")],
    &[("tentpeg_tests", "")],
];

/// Uses that the order would allow and that are forbidden all the same: the driver's side of a command knows nothing of
/// the model, so that the two sides cannot share a mistake.
const NEVER: &[(&str, &str)] = &[("queue", "model"), ("controller", "model")];

/// What `spec` must not name: it is plain data.
const INPUT_OUTPUT: &[&str] = &["fs", "io", "net", "os", "process", "thread", "env"];

/// What is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The file, from the workspace's root.
    pub file: String,
    /// The line; 0 where it is the whole file.
    pub line: usize,
    /// What is wrong with it.
    pub wrong: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.wrong)
    }
}

/// Looks at one file.
pub fn check(file: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, wrong: String| findings.push(Finding { file: file.path.clone(), line, wrong });
    let lines = file.text.lines().count();
    if lines > MOST_LINES {
        find(0, format!("{lines} lines: a file has {MOST_LINES} at the most"));
    }
    let contents = match Contents::of(&file.text) {
        Ok(contents) => contents,
        Err(error) => {
            find(0, format!("not Rust: {error}"));
            return findings;
        }
    };
    let room = room(file.krate, &file.module);
    let in_spec = room.is_some_and(|room| room.name == "spec");
    let listed = UNSAFE_FILES.contains(&file.path.as_str());
    for line in &contents.unsafe_lines {
        if in_spec {
            find(*line, "`unsafe` in spec, which is plain data".to_owned());
        } else if !listed {
            find(*line, "`unsafe` in a file that is not on the list of those that may have it".to_owned());
        }
    }
    if listed && contents.unsafe_lines.is_empty() {
        find(0, "it is on the list of files with `unsafe` and has none: take it off".to_owned());
    }
    if file.exempt {
        return findings;
    }
    for named in &contents.named {
        if let Some(wrong) = against_the_order(file, room, named) {
            find(named.line, wrong);
        }
    }
    findings
}

/// A room with its place in the order.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Room {
    row: usize,
    krate: &'static str,
    name: &'static str,
}

/// The room of a module. The root of the driver's crate is none: it only declares its rooms.
fn room(krate: &str, module: &[String]) -> Option<Room> {
    let first = module.first().map_or("", String::as_str);
    ROOMS.iter().enumerate().find_map(|(row, rooms)| {
        let (krate, name) =
            rooms.iter().find(|(of, name)| *of == krate && (name.is_empty() || *name == first)).copied()?;
        Some(Room { row, krate, name })
    })
}

/// What is wrong with naming a path in this file.
fn against_the_order(file: &SourceFile, from: Option<Room>, named: &Named) -> Option<String> {
    let path = named.segments.join("::");
    let first = named.segments.first()?.as_str();
    if from.is_some_and(|room| room.name == "spec") {
        let second = named.segments.get(1).map(String::as_str);
        let io = match first {
            "libc" => true,
            // The whole of std, by any name, could be anything.
            "std" => second.is_none_or(|module| module == "*" || INPUT_OUTPUT.contains(&module)),
            _ => false,
        };
        if io {
            return Some(format!("spec names {path}: it does no input or output"));
        }
    }
    let (krate, module) = resolve(file, named)?;
    // Naming a crate as such, to rename or to open the whole of it, hides which room is meant.
    let to = match room(krate, &module) {
        Some(to) => to,
        None if krate == file.krate && file.module.is_empty() => return None,
        None => return Some(format!("{path} names no room of {krate}: name the room that it lives in")),
    };
    let Some(from) = from else {
        let lower = krate == file.krate;
        return (!lower).then(|| format!("the root of {} declares its rooms, but names {path}", file.krate));
    };
    if to == from {
        return None;
    }
    if NEVER.contains(&(from.name, to.name)) && from.krate == to.krate {
        return Some(format!("{from} must not know {to}: {path}"));
    }
    (to.row >= from.row).then(|| format!("{from} must not use {to}, which stands above it: {path}"))
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.name.is_empty() { self.krate } else { self.name })
    }
}

/// The crate of ours and the module or item that a path names; `None` for other crates, and for what is relative to the
/// module itself, which is in the same room.
fn resolve(file: &SourceFile, named: &Named) -> Option<(&'static str, Vec<String>)> {
    let own = CRATES.iter().find(|(_, name)| *name == file.krate).map(|(_, name)| *name)?;
    let mut here: Vec<String> = file.module.iter().chain(&named.module).cloned().collect();
    let mut rest = named.segments.as_slice();
    match rest.first()?.as_str() {
        "crate" => here.clear(),
        "self" => {}
        "super" => {
            while rest.first().is_some_and(|segment| segment == "super") {
                here.pop();
                rest = &rest[1..];
            }
            here.extend(rest.iter().cloned());
            return Some((own, here));
        }
        name => {
            let (_, krate) = CRATES.iter().find(|(_, krate)| *krate == name)?;
            return Some((krate, rest[1..].to_vec()));
        }
    }
    here.extend(rest[1..].iter().cloned());
    Some((own, here))
}

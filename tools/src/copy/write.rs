//! `tentpeg write`: a file into a range of a device.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use tentpeg_engine::{ByteSize, Engine, OpCode, OpenOptions, Segment};

use super::input::{Input, Reading};
use super::window::{WINDOW_BYTES, Window};
use super::{Copied, CopyError, Range, close, config, summary};
use crate::both_sides::{BothSides, Start};
use crate::device::{self, Geometry, NewFiles, NodeArgs, SegmentArgs};
use crate::interrupt::Interrupt;
use crate::memory_budget::Available;
use crate::progress;
use crate::report::{MemoryUsed, Report};

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct WriteArgs {
    /// The device, such as model:path=FILE,size=4GiB, which creates FILE, or model:path=FILE,overwrite for one that exists
    pub device: String,
    /// Which segment.
    #[command(flatten)]
    pub segment: SegmentArgs,
    /// Who this host is.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Where to start, in bytes or with a unit (4096, 1MiB): a multiple of the device's logical block
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub offset: ByteSize,
    /// What to write; `-` is standard input
    #[arg(long, default_value = "-", value_name = "FILE")]
    pub input: PathBuf,
    /// How much of the input to write, from its start [default: all; needed for a pipe]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub length: Option<ByteSize>,
    /// Fill the last block with zeroes where the input ends within it, instead of refusing
    #[arg(long)]
    pub pad: bool,
}

/// Writes the input into the range, and makes it durable.
///
/// # Errors
/// [`CopyError`]. Only [`CopyError::Partial`] comes after anything was written to a device that was there before; a file that was
/// created for it is removed again.
pub fn run(args: &WriteArgs, interrupt: &Interrupt) -> Result<Copied, CopyError> {
    let input = Input::open(&args.input)?;
    let length = input.length(args.length.map(|size| size.0))?;
    // What is wrong must not create a file.
    if let Some(geometry) = device::to_be_created(&args.device)? {
        range(args, length, geometry)?;
    }
    let own_file = args.segment.devices(&args.device).find_map(|uri| device::own_file(uri, input.metadata()));
    if let Some(path) = own_file {
        return Err(CopyError::OwnFile { name: input.name().to_owned(), path });
    }
    let options = OpenOptions { config: config(), ..args.node.options() };
    let (engine, _) = Engine::open_devices(args.segment.devices(&args.device), options)?;
    let new = NewFiles::of(&engine);
    match to_device(args, engine, input, length, interrupt) {
        Ok(copied) if !copied.report.interrupted => Ok(copied),
        Ok(mut copied) => {
            match new.remove() {
                Ok(None) => {}
                Ok(Some(files)) => copied.summary += &format!("; {files}, which was created for it, is removed again"),
                Err(left) => copied.summary += &format!("; {left}"),
            }
            Ok(copied)
        }
        Err(cause) => Err(match new.remove() {
            Ok(None) => cause,
            Ok(Some(files)) => {
                // What was written in part is gone.
                let cause = if let CopyError::Partial { cause, .. } = cause { cause } else { Box::new(cause) };
                CopyError::Undone { cause, files }
            }
            Err(left) => CopyError::NotUndone { cause: Box::new(cause), left },
        }),
    }
}

/// Writes to an open device, and closes it.
fn to_device(
    args: &WriteArgs,
    engine: Engine,
    input: Input,
    length: u64,
    interrupt: &Interrupt,
) -> Result<Copied, CopyError> {
    device::require_bytes("write", &engine)?;
    let segment = args.segment.of(&engine)?;
    device::require_writable(&engine, segment)?;
    let range = range(args, length, Geometry::of(segment))?;
    if device::is_in_memory(&args.device) {
        fits(range.length, &Available::now()?)?;
    }
    let report = transfer(&engine, segment, range, input, length, interrupt)?;
    let not_fenced = device::not_fenced(engine.devices().map(|device| device.info()));
    close(engine)?;
    let summary = if report.interrupted {
        let Range { offset, length } = range;
        format!("interrupted after {} of {length} bytes at {offset}, which are not flushed", report.bytes_written)
    } else {
        format!("wrote {}", summary(&report, range))
    };
    let gone = device::is_in_memory(&args.device).then(|| {
        "a model without path=FILE keeps its bytes in memory, so what was written is gone when this command ends"
            .to_owned()
    });
    let note = gone.or(not_fenced);
    Ok(Copied { report, summary, note })
}

/// Whether `length` bytes that stay in memory have room, with the window before them.
pub(super) fn fits(length: u64, available: &Available) -> Result<(), CopyError> {
    let needed = length.saturating_add(length.min(WINDOW_BYTES));
    let usable = available.usable();
    if needed > usable {
        return Err(CopyError::NoRoom { length, needed, usable, bound: available.bound.clone() });
    }
    Ok(())
}

fn range(args: &WriteArgs, length: u64, device: Geometry) -> Result<Range, CopyError> {
    let padded = match args.pad {
        // What overflows is past the end of every device.
        true => length.checked_next_multiple_of(device.block).unwrap_or(u64::MAX),
        false => length,
    };
    Ok(Range::new(args.offset.0, padded, device, || {
        let down = length - length % device.block;
        let shorter = if down == 0 { String::new() } else { format!(", or --length {down} to write less") };
        format!("give --pad to add {} zeroes{shorter}", device.block - length % device.block)
    })?)
}

pub(super) fn transfer(
    engine: &Engine,
    segment: &Segment,
    range: Range,
    input: Input,
    length: u64,
    interrupt: &Interrupt,
) -> Result<Report, CopyError> {
    let bar = progress::over_bytes(range.length);
    let mut window = Window::new(engine, segment, range)?;
    let start = Start::of(engine);
    let began = Instant::now();
    let reading = input.start(length, window.chunk_bytes())?;
    let result = stream(&mut window, reading, interrupt, &bar);
    bar.finish_and_clear();
    result.map_err(|cause| match (cause.with_host(engine), window.submitted()) {
        (cause, 0) => cause,
        (cause, submitted) => {
            let end = range.offset + submitted;
            CopyError::Partial { offset: range.offset, end, cause: Box::new(cause) }
        }
    })?;
    let mut report = Report {
        command: "write",
        device: engine.info().name.clone(),
        interrupted: window.ended() < range.length,
        bytes_written: window.ended(),
        elapsed: began.elapsed(),
        memory: Some(MemoryUsed::from(window.memory())),
        ..Report::default()
    };
    report.add_both_sides(BothSides::since(&start, engine));
    Ok(report)
}

/// All of the input, or what there was of it when the user ended it. Flushed when it was all.
fn stream(
    window: &mut Window<'_>,
    reading: Reading,
    interrupt: &Interrupt,
    bar: &indicatif::ProgressBar,
) -> Result<(), CopyError> {
    let mut whole = true;
    loop {
        while whole && let Some(chunk) = window.next() {
            let Some(bytes) = reading.next(interrupt)? else {
                whole = false;
                break;
            };
            let view = window.view(chunk);
            view.write(0, &bytes);
            // The last block's rest, with --pad.
            view.slice(bytes.len(), chunk.length - bytes.len()).fill(0);
            reading.recycle(bytes);
            window.submit(OpCode::Write, chunk)?;
        }
        match window.oldest()? {
            Some(chunk) => bar.inc(chunk.length as u64),
            None => break,
        }
    }
    if whole {
        reading.finish()?;
        window.flush()?;
    }
    Ok(())
}

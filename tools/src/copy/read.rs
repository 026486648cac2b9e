//! `tentpeg read`: a range of a device into a file.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use tentpeg_engine::{ByteSize, Engine, OpCode, OpenOptions, Scope, Segment};

use super::output::Output;
use super::window::Window;
use super::{Copied, CopyError, Range, close, config, summary};
use crate::both_sides::{BothSides, Start};
use crate::device::{self, Geometry, SegmentArgs};
use crate::interrupt::Interrupt;
use crate::progress;
use crate::report::{MemoryUsed, Report};

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct ReadArgs {
    /// The device, such as model:path=FILE for one in a file that exists
    pub device: String,
    /// Which segment.
    #[command(flatten)]
    pub segment: SegmentArgs,
    /// Read all of the device, label and all, and not a segment of it
    #[arg(long, conflicts_with_all = ["segment", "with"])]
    pub whole_device: bool,
    /// Where to start, in bytes or with a unit (4096, 1MiB): a multiple of the device's logical block
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub offset: ByteSize,
    /// How much to read: a multiple of the device's logical block
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub length: ByteSize,
    /// Where to write it; `-` is standard output. A file appears when all of it is there, or not at all
    #[arg(long, default_value = "-", value_name = "FILE")]
    pub output: PathBuf,
    /// Replace the output file if it exists
    #[arg(long)]
    pub force: bool,
}

/// Reads the range into the output.
///
/// # Errors
/// [`CopyError`]; an output file is then not there, or as it was.
pub fn run(args: &ReadArgs, interrupt: &Interrupt) -> Result<Copied, CopyError> {
    let scope = if args.whole_device { Scope::Device } else { Scope::Segments };
    let options = OpenOptions { config: config(), scope, ..OpenOptions::default() };
    let (engine, _) = device::open_to_read("read", args.segment.devices(&args.device), options)?;
    device::require_bytes("read", &engine)?;
    let segment = args.segment.of(&engine)?;
    let geometry = Geometry::of(segment);
    let range = Range::new(args.offset.0, args.length.0, geometry, || {
        let (down, block) = (args.length.0 - args.length.0 % geometry.block, geometry.block);
        match down {
            0 => format!("give --length {block}"),
            _ => format!("give --length {down} or {}", down.saturating_add(block)),
        }
    })?;
    if let Some(metadata) = Output::metadata(&args.output)
        && let Some(path) = args.segment.devices(&args.device).find_map(|uri| device::own_file(uri, &metadata))
    {
        let name =
            if args.output == Path::new("-") { "standard output".into() } else { args.output.display().to_string() };
        return Err(CopyError::OwnFile { name, path });
    }
    let output = Output::open(&args.output, args.force)?;
    let left = match &output {
        Output::File { path, .. } => format!("{} is as it was", path.display()),
        Output::Stdout(_) => "standard output has a part of them".to_owned(),
    };
    let report = transfer(&engine, segment, range, output, interrupt).map_err(|cause| cause.with_host(&engine))?;
    close(engine)?;
    let summary = if report.interrupted {
        format!("interrupted before all of {} bytes were read; {left}", range.length)
    } else {
        format!("read {}", summary(&report, range))
    };
    let note = device::is_in_memory(&args.device)
        .then_some("a model without path=FILE starts empty each time, so every byte that was read is 0".to_owned());
    Ok(Copied { report, summary, note })
}

fn transfer(
    engine: &Engine,
    segment: &Segment,
    range: Range,
    mut output: Output,
    interrupt: &Interrupt,
) -> Result<Report, CopyError> {
    let bar = progress::over_bytes(range.length);
    let mut window = Window::new(engine, segment, range)?;
    let mut bytes = vec![0; window.chunk_bytes()];
    let start = Start::of(engine);
    let began = Instant::now();
    loop {
        while let Some(chunk) = window.next().filter(|_| !interrupt.is_set()) {
            window.submit(OpCode::Read, chunk)?;
        }
        let Some(chunk) = window.oldest()? else { break };
        let bytes = &mut bytes[..chunk.length];
        window.view(chunk).read(0, bytes);
        if !interrupt.is_set() {
            output.write(bytes, interrupt)?;
        }
        bar.inc(chunk.length as u64);
    }
    // What completed after the interrupt was not passed on, or not in whole.
    let interrupted = window.ended() < range.length || interrupt.is_set();
    if !interrupted {
        output.finish()?;
    }
    bar.finish_and_clear();
    let mut report = Report {
        command: "read",
        device: engine.info().name.clone(),
        interrupted,
        bytes_read: window.ended(),
        elapsed: began.elapsed(),
        memory: Some(MemoryUsed::from(window.memory())),
        ..Report::default()
    };
    report.add_both_sides(BothSides::since(&start, engine));
    Ok(report)
}

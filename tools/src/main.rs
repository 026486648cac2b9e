//! The binary: reads the command line, hands over to the library, prints, and sets the exit status.
//!
//! 0: done; 1: an error, named in one line on standard error; 2: a wrong command line; 130: interrupted.

use std::env;
use std::error::Error;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::{Parser, Subcommand};
use tentpeg_driver::bus::Sysfs;
use tentpeg_tools::bench::{self, BenchArgs};
use tentpeg_tools::bind::{self, BindArgs};
use tentpeg_tools::copy::read::{self, ReadArgs};
use tentpeg_tools::copy::write::{self, WriteArgs};
use tentpeg_tools::copy::{Copied, CopyError};
use tentpeg_tools::doctor::{self, DoctorArgs, Level};
use tentpeg_tools::hil::{self, HilArgs};
use tentpeg_tools::info::{self, InfoArgs};
use tentpeg_tools::interrupt::{self, Interrupt};
use tentpeg_tools::label::{self, Answer, LabelCommand};
use tentpeg_tools::list::{self, ListArgs};
use tentpeg_tools::options;
use tentpeg_tools::replay::command::{self as replay, ReplayArgs};
use tentpeg_tools::report::file::ReportFile;
use tentpeg_tools::report::page::{self, Context};
use tentpeg_tools::report::{self, Report};
use tentpeg_tools::segment::{self, SegmentCommand};

/// Moves blocks between NVMe controllers and memory.
///
/// A device is named by a URI. `model:size=4GiB` is a controller in software whose blocks are in memory;
/// `model:path=FILE,size=4GiB` keeps them in FILE, which is created. A file that exists is read only, unless the URI
/// says `overwrite`. `cache=SIZE` puts a volatile write cache before FILE: what is in it is lost where the process does
/// not end in order. Sizes are in bytes, or in B, KiB, MiB, GiB or TiB (powers of 1,024); GB/s is 10^9 bytes a second.
#[derive(Parser)]
#[command(name = "tentpeg", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Replay a KV-cache trace, and check every byte
    ///
    /// A request's blocks are visited in order. A block that is held, behind hits only, is read from the device into a
    /// paged pool; any other is written. Every byte that is read is compared with what was written.
    ///
    /// Example: tentpeg replay --trace conversation_trace.jsonl --slots 16384
    Replay(ReplayArgs),
    /// Show what a device is, what fits into its commands, and its health; or what a GPU is, and how drives reach it
    ///
    /// Of a GPU also where it sits beside each NVMe controller of this machine, whether the ports between the two redirect
    /// requests to the IOMMU (ACS, which root alone may read), and which way the controller's bytes would go.
    #[command(after_help = "Examples:\n  tentpeg info model:size=4GiB,lba=4096\n  tentpeg info cuda:0")]
    Info(InfoArgs),
    /// Read a range of a device into a file, in whole logical blocks
    #[command(
        after_help = "Example:\n  tentpeg read model:path=disk.img --offset 1MiB --length 4MiB --output blocks.bin"
    )]
    Read(ReadArgs),
    /// Write a file into a range of a device, in whole logical blocks, and flush it
    #[command(
        after_help = "Examples:\n  tentpeg write model:path=disk.img,size=1GiB --offset 1MiB --input blocks.bin\n  \
                      head -c 5000 FILE | tentpeg write model:path=disk.img,overwrite --offset 0 --length 5000 --pad"
    )]
    Write(WriteArgs),
    /// Measure how fast requests of one size go to and from a device
    ///
    /// Prints requests, GB/s, blocks a second, latency, and what the device saw of it. Ctrl-C ends it with the numbers
    /// so far.
    #[command(after_help = "Examples:\n  tentpeg bench model:store=null --depth 32 --time 2s\n  \
                            tentpeg bench model:size=4GiB --mode mixed --read-percent 80 --block 128KiB --json\n  \
                            tentpeg bench pci:0000:04:00.0 pci:0000:05:00.0 --lanes 2 --pin near --poll always")]
    Bench(BenchArgs),
    /// List the NVMe controllers of this machine, and whether they can be driven from here
    List(ListArgs),
    /// Look whether this machine can drive controllers from here, and say what to do where it cannot
    ///
    /// Each line is good, a warning or bad; the exit status is 1 where one is bad. Nothing is changed.
    Doctor(DoctorArgs),
    /// Give NVMe controllers to VFIO, so that they can be driven from here
    ///
    /// A controller whose disk is mounted, swapped to, held by another block device or opened exclusively is refused,
    /// and so is the disk that this machine runs from. What is done is printed; it ends with the next start of the
    /// machine.
    #[command(after_help = "Example:\n  tentpeg bind --dry-run 0000:04:00.0")]
    Bind(BindArgs),
    /// Give NVMe controllers back to the kernel
    #[command(after_help = "Example:\n  tentpeg unbind 0000:04:00.0")]
    Unbind(BindArgs),
    /// Prove the driver on this machine: in software, in a guest, on drives that may be overwritten
    #[command(disable_help_flag = true, after_help = "Example:\n  tentpeg hil test --inventory drives.toml")]
    Hil(HilArgs),
    /// Make, show, mend or remove what says whose a device is and which segments it holds
    #[command(subcommand)]
    Label(LabelCommand),
    /// Make, list, show, change or remove segments of devices with a label
    #[command(subcommand)]
    Segment(SegmentCommand),
}

fn main() -> ExitCode {
    let began = SystemTime::now();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return answer(&error),
    };
    let interrupt = match Interrupt::on_signals() {
        Ok(interrupt) => interrupt,
        Err(error) => return fail(&format!("cannot handle Ctrl-C: {error}")),
    };
    match cli.command {
        Command::Replay(args) => finish(replay::run(&args, &interrupt), args.json, args.report.as_deref(), began),
        Command::Info(args) => match info::run(&Sysfs::system(), &args) {
            Ok(rows) => print(&if args.json { report::json(&rows) } else { report::table(&rows) }),
            Err(error) => fail(&error.to_string()),
        },
        Command::Read(args) => finish_copy(read::run(&args, &interrupt)),
        Command::Write(args) => finish_copy(write::run(&args, &interrupt)),
        Command::Label(command) => tell(label::run(&command)),
        Command::Segment(command) => tell(segment::run(&command)),
        Command::Bench(args) => finish(bench::run(&args, &interrupt), args.json, args.report.as_deref(), began),
        Command::List(args) => finish_text(list::run(&Sysfs::system(), &args)),
        Command::Doctor(args) => {
            let (text, worst) = doctor::run(&Sysfs::system(), &args);
            let printed = print(&text);
            if worst == Level::Bad { ExitCode::FAILURE } else { printed }
        }
        Command::Hil(args) => fail(&hil::run(&args)),
        Command::Bind(args) => finish_text(bind::run(&Sysfs::system(), &args, true)),
        Command::Unbind(args) => finish_text(bind::run(&Sysfs::system(), &args, false)),
    }
}

/// What the command line asks of the reader of command lines: help, the version; or what is wrong with it.
fn answer(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return print(&error.render().to_string());
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Standard error may be closed; there is nobody to tell then.
        let _ = write!(io::stderr(), "{}", error.render());
    } else {
        say(&options::one_line(&error.render()));
    }
    ExitCode::from(USAGE)
}

/// The exit status of a wrong command line.
const USAGE: u8 = 2;

/// Prints a report on standard output, and writes its page where one is asked for. The exit status says whether the run was whole and
/// right.
fn finish(result: Result<Report, impl Error>, json: bool, page: Option<&Path>, began: SystemTime) -> ExitCode {
    let report = match result {
        Ok(report) => report,
        Err(error) => return fail(&error.to_string()),
    };
    report.note.iter().for_each(|note| say(&format!("note: {note}")));
    let mut printed = print(&if json { report.json() } else { report.table() });
    if let Some(path) = page {
        let written = write_page(path, &report, began);
        printed = if written == ExitCode::SUCCESS { printed } else { written };
    }
    status_of(&report, printed)
}

/// Writes the page of a report, and says where.
fn write_page(path: &Path, report: &Report, began: SystemTime) -> ExitCode {
    let arguments = env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned());
    let context = Context::new(["tentpeg".to_owned()].into_iter().chain(arguments).collect(), began);
    match ReportFile::new(path).and_then(|file| file.write(&page::html(report, &context))) {
        Ok(()) => {
            say(&format!("the report is in {}", path.display()));
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Prints an answer, and what is to be noted of it on standard error.
fn tell(result: Result<Answer, impl Error>) -> ExitCode {
    match result {
        Ok(Answer { text, note }) => {
            note.into_iter().for_each(|note| say(&format!("note: {note}")));
            print(&text)
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Says on standard error how a copy ended: its bytes may go to standard output.
fn finish_copy(result: Result<Copied, CopyError>) -> ExitCode {
    match result {
        Ok(Copied { report, summary, note }) => {
            note.into_iter().for_each(|note| say(&format!("note: {note}")));
            say(&summary);
            status_of(&report, ExitCode::SUCCESS)
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Prints what was done.
fn finish_text(result: Result<String, impl Error>) -> ExitCode {
    match result {
        Ok(text) => print(&text),
        Err(error) => fail(&error.to_string()),
    }
}

/// The exit status of a run that has its report.
fn status_of(report: &Report, otherwise: ExitCode) -> ExitCode {
    match report.errors.summary() {
        Some(errors) => fail(&errors),
        None if report.interrupted => ExitCode::from(interrupt::EXIT_STATUS),
        None => otherwise,
    }
}

/// Prints on standard output. A reader that has gone away, such as `head`, is no error.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Says what went wrong, in one line.
fn fail(message: &str) -> ExitCode {
    say(message);
    ExitCode::FAILURE
}

/// The message on one line, and without what a terminal would act on.
fn printable(message: &str) -> String {
    let one_line = message.replace('\n', " ");
    one_line.chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// One line on standard error.
fn say(message: &str) {
    // Standard error may be closed; there is nobody to tell then.
    let _ = writeln!(io::stderr(), "tentpeg: {}", printable(message));
}

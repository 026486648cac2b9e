//! Counts the instructions of the driver's hot path, and of the whole stack, by callgrind.
//!
//! `instructions` runs itself under valgrind, once for each figure, and compares with `tests/instructions.json`: more
//! than 5% above fails, when the compiler is the one that the file names. `instructions --write` writes the file anew.
//! `instructions --functions FIGURE` lists where the instructions of one figure go.
//!
//! Only the functions whose names start with `measured_` are counted (`--toggle-collect`): the stepped controller takes
//! its turns between them, so its work is left out. Counts depend on the compiler and the profile, not on the machine's
//! load.

use std::error::Error;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tentpeg_tests::instructions::{FIGURES, Figures, run_workload, thread_of};

/// How much a figure may rise over the committed one.
const TOLERANCE: f64 = 1.05;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => check(),
        ["--write"] => measure_all().and_then(|figures| figures.write()),
        ["--functions", figure] => functions(figure),
        ["--workload", figure] => run_workload(figure).map(|_| ()),
        _ => Err("usage: instructions [--write | --functions FIGURE]".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and compares with the committed figures.
fn check() -> Result<(), Box<dyn Error>> {
    let committed = Figures::read()?;
    let now = measure_all()?;
    if now.rustc != committed.rustc {
        println!("not compared: the committed figures are of {}, this is {}", committed.rustc, now.rustc);
        return Ok(());
    }
    let mut risen = Vec::new();
    for (name, count) in &now.instructions {
        let Some(before) = committed.instructions.get(name) else {
            return Err(format!("{name} is not among the committed figures: run with --write").into());
        };
        println!("{name:<56} {count:>8.1}  committed {before:>8.1}");
        if *count > before * TOLERANCE {
            risen.push(name.as_str());
        }
    }
    if risen.is_empty() { Ok(()) } else { Err(format!("risen by more than 5%: {}", risen.join(", ")).into()) }
}

fn measure_all() -> Result<Figures, Box<dyn Error>> {
    let mut figures = Figures { rustc: rustc_version()?, ..Figures::default() };
    for figure in FIGURES {
        let Measured { count, operations, .. } = measure(figure)?;
        let each = count as f64 / operations as f64;
        eprintln!("{figure:<56} {each:>8.1} instructions");
        figures.instructions.insert((*figure).to_owned(), (each * 10.0).round() / 10.0);
    }
    Ok(figures)
}

/// What callgrind has counted.
struct Measured {
    count: u64,
    operations: u64,
    /// What it has written of the thread that counts.
    file: PathBuf,
    _folder: tempfile::TempDir,
}

/// Runs a workload under callgrind.
fn measure(figure: &str) -> Result<Measured, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut file = folder.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*measured_*"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--separate-threads={}", if thread_of(figure).is_some() { "yes" } else { "no" }))
        .arg(std::env::current_exe()?)
        .args(["--workload", figure])
        .output()
        .map_err(|error| format!("cannot run valgrind ({error}): install Debian's package valgrind"))?;
    if !output.status.success() {
        return Err(format!("{figure}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let operations = String::from_utf8(output.stdout)?.trim().parse()?;
    if let Some(thread) = thread_of(figure) {
        file.set_extension(format!("out-{thread:02}"));
    }
    let text = std::fs::read_to_string(&file)?;
    let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
    let count = totals.ok_or("callgrind wrote no totals")?.trim().parse()?;
    Ok(Measured { count, operations, file, _folder: folder })
}

/// Prints callgrind's own list of functions.
fn functions(figure: &str) -> Result<(), Box<dyn Error>> {
    let Measured { count, operations, file, _folder } = measure(figure)?;
    println!("{figure}: {count} instructions for {operations} operations");
    let status = Command::new("callgrind_annotate").args(["--auto=no", "--show-percs=yes"]).arg(file).status()?;
    if status.success() { Ok(()) } else { Err("callgrind_annotate failed".into()) }
}

fn rustc_version() -> Result<String, Box<dyn Error>> {
    let output = Command::new("rustc").arg("--version").output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

//! Other ways to do the same reads, side by side with ours: from a file, through the kernel, into GPU memory.
//!
//! A round measures ours and then each other way for the same time; there are five of them, and the median of each
//! counts. A way that cannot be gone has its reason in place of numbers. In the end each way reads once more, and what came
//! is compared with the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use serde_json::json;
use tentpeg_driver::gpu::{Cuda, FileRead, FileReader, FileWay, FileWayConfig, FileWayError, Gpu, LibraryError};
use thiserror::Error;

use super::measure::{self, Rig};
use super::plan::{End, Plan};
use super::workload::Workload;
use super::{BenchError, Mode};
use crate::memory_place::{MemoryArgs, Place};
use crate::options::number;
use crate::report::{Row, Value};
use crate::units::Rate;

/// Of each way this many are measured, and the middle one counts.
const ROUNDS: usize = 5;
/// How long a round of a way is, where the bench has a number of requests and no time.
const ROUND: Duration = Duration::from_secs(1);
/// Bytes of a list of reads, which is done before the clock is looked at, and the most reads of one.
const LIST_BYTES: u64 = 64 << 20;
const LIST: u64 = 4096;
/// Reads whose bytes are compared with the file in the end.
const COMPARED: usize = 8;

/// What the user asks for.
#[derive(Args, Clone, Debug)]
pub struct BesideArgs {
    /// Measure other ways to do the same reads, from a file into the same GPU's memory, side by side: cufile-batch, cufile,
    /// pread, io_uring
    #[arg(long = "beside", id = "beside", value_name = "WAYS", value_delimiter = ',', requires = "file")]
    pub ways: Vec<FileWay>,
    /// The file that they read, at random places
    #[arg(long = "beside-file", id = "file", value_name = "FILE", requires = "beside")]
    pub file: Option<PathBuf>,
    /// Reads that they have in flight, where they have that
    #[arg(long = "beside-depth", id = "beside_depth", requires = "beside", default_value_t = 64, value_parser = number::<u32>(1, 128u64), allow_hyphen_values = true)]
    pub depth: u32,
    /// Their threads, where they have these
    #[arg(long = "beside-threads", id = "beside_threads", requires = "beside", default_value_t = 8, value_parser = number::<u32>(1, 64u64), allow_hyphen_values = true)]
    pub threads: u32,
}

/// Why other ways are not measured.
#[derive(Debug, Error)]
pub enum BesideError {
    /// Caller: they are for reads into GPU memory.
    #[error("--beside is for reads into GPU memory: add --memory cuda:0, and leave --mode away")]
    NotReads,
    /// Caller: the file is shorter than a request.
    #[error("--beside-file {}: {len} bytes are fewer than the {block} of a request: name a larger file", path.display())]
    Short {
        /// The file.
        path: PathBuf,
        /// Its bytes.
        len: u64,
        /// Bytes of a request.
        block: u64,
    },
    /// Caller or host: the file.
    #[error("--beside-file {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// Host: no GPU.
    #[error(transparent)]
    Gpu(#[from] LibraryError),
}

/// A way that is measured.
struct Other {
    way: FileWay,
    /// Bytes a second in each round, or why there are none.
    rounds: Result<Vec<f64>, String>,
    reader: Option<FileReader>,
}

impl Other {
    /// It is not measured any more, nor asked for anything: a way that has failed may have reads in flight still, which
    /// would be taken for the next ones.
    fn end(&mut self, reason: String) {
        self.rounds = Err(reason);
        self.reader = None;
    }
}

/// What is read from where.
struct Source {
    file: File,
    blocks: u64,
    block: u64,
    rng: Xoshiro256PlusPlus,
}

impl Source {
    fn open(path: &Path, plan: &Plan) -> Result<Self, BesideError> {
        let failed = |source| BesideError::File { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let (len, block) = (file.metadata().map_err(failed)?.len(), plan.block);
        match len / block {
            0 => Err(BesideError::Short { path: path.to_owned(), len, block }),
            blocks => Ok(Self { file, blocks, block, rng: Xoshiro256PlusPlus::seed_from_u64(plan.seed) }),
        }
    }

    /// A list of reads, one block of memory after the other.
    fn list(&mut self) -> Vec<FileRead> {
        let Self { blocks, block, rng, .. } = self;
        let count = (LIST_BYTES / *block).clamp(1, LIST);
        let mut place = || ((u128::from(rng.next_u64()) * u128::from(*blocks)) >> 64) as u64;
        (0..count).map(|at| FileRead { offset: place() * *block, at: at * *block, len: *block }).collect()
    }

    fn memory_len(&self) -> usize {
        ((LIST_BYTES / self.block).clamp(1, LIST) * self.block) as usize
    }

    /// Whether what a list has read is what the file has.
    fn compare(&self, reader: &FileReader, list: &[FileRead]) -> Result<(), String> {
        let (mut found, mut right) = (vec![0; self.block as usize], vec![0; self.block as usize]);
        let step = (list.len() / COMPARED).max(1);
        for read in list.iter().step_by(step) {
            reader.look(read.at, &mut found).map_err(|error| error.to_string())?;
            self.file.read_exact_at(&mut right, read.offset).map_err(|error| error.to_string())?;
            if found != right {
                return Err(format!("the bytes at {} of the file are not what was read", read.offset));
            }
        }
        Ok(())
    }
}

/// Measures the other ways beside ours, as rows of the report.
///
/// # Errors
/// [`BenchError`]: what is asked for cannot be measured, or ours failed. A way that cannot be gone says so in its row.
pub fn run(args: &BesideArgs, memory: &MemoryArgs, rig: &mut Rig<'_>, plan: &Plan) -> Result<Vec<Row>, BenchError> {
    let (Some(path), false) = (&args.file, args.ways.is_empty()) else { return Ok(Vec::new()) };
    let Place::Cuda(ordinal) = memory.place else { return Err(BesideError::NotReads.into()) };
    if plan.mode != Mode::Read {
        return Err(BesideError::NotReads.into());
    }
    let gpu = Cuda::load().and_then(|cuda| Gpu::open(&cuda, ordinal)).map_err(BesideError::from)?;
    let mut source = Source::open(path, plan)?;
    let config = FileWayConfig { depth: args.depth, threads: args.threads, most: plan.block };
    let mut others: Vec<Other> =
        args.ways.iter().map(|way| open(&gpu, *way, path, source.memory_len(), config)).collect();
    let round = match plan.end {
        End::Time(time) => (time / ROUNDS as u32).max(Duration::from_millis(1)),
        End::Requests(_) => ROUND,
    };
    let ours_plan = Plan { end: End::Time(round), ..plan.clone() };
    let mut ours = Vec::new();
    for _ in 0..ROUNDS {
        let measured = measure::run(rig, &ours_plan, Workload::new(&ours_plan))?;
        ours.push(measured.bytes_read as f64 / measured.elapsed.as_secs_f64());
        for other in &mut others {
            if rig.interrupt.is_set() {
                other.end("interrupted".to_owned());
            }
            let speed = other.reader.as_mut().map(|reader| measure(reader, &mut source, round));
            match (speed, &mut other.rounds) {
                (Some(Ok(speed)), Ok(rounds)) => rounds.push(speed),
                (Some(Err(error)), _) => other.end(error.to_string()),
                _ => {}
            }
        }
    }
    for other in &mut others {
        let Some(reader) = &mut other.reader else { continue };
        let list = source.list();
        let read = reader.read(&list).map_err(|error| error.to_string());
        if let (Err(error), Ok(_)) = (read.and_then(|()| source.compare(reader, &list)), &other.rounds) {
            other.rounds = Err(error);
        }
    }
    Ok(rows(plan.block, median(ours), others))
}

fn open(gpu: &Arc<Gpu>, way: FileWay, path: &Path, memory: usize, config: FileWayConfig) -> Other {
    match FileReader::open(gpu, way, path, memory, config) {
        Ok(reader) => Other { way, rounds: Ok(Vec::new()), reader: Some(reader) },
        Err(error) => Other { way, rounds: Err(error.to_string()), reader: None },
    }
}

/// Reads lists for a time: bytes a second.
fn measure(reader: &mut FileReader, source: &mut Source, round: Duration) -> Result<f64, FileWayError> {
    let (start, mut bytes) = (Instant::now(), 0);
    loop {
        let list = source.list();
        reader.read(&list)?;
        bytes += list.iter().map(|read| read.len).sum::<u64>();
        let elapsed = start.elapsed();
        if elapsed >= round {
            return Ok(bytes as f64 / elapsed.as_secs_f64());
        }
    }
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied().unwrap_or_default()
}

fn rows(block: u64, ours: f64, others: Vec<Other>) -> Vec<Row> {
    let line = |speed: f64| format!("{}, {:.3} M/s", Rate::of_bytes_a_second(speed), speed / block as f64 / 1e6);
    let mut rows = vec![Row::table("beside: tentpeg", Value::Text(line(ours)))];
    let mut objects = vec![json!({ "way": "tentpeg", "bytes_per_second": ours })];
    for Other { way, rounds, .. } in others {
        let label = match way {
            FileWay::CufileBatch => "beside: cufile-batch",
            FileWay::Cufile => "beside: cufile",
            FileWay::Pread => "beside: pread",
            FileWay::IoUring => "beside: io_uring",
        };
        let text = match rounds {
            Ok(rounds) => {
                let speed = median(rounds);
                objects.push(json!({ "way": way.name(), "bytes_per_second": speed, "tentpeg_times": ours / speed }));
                format!("{}; tentpeg {:.1} times as fast", line(speed), ours / speed)
            }
            Err(reason) => {
                objects.push(json!({ "way": way.name(), "error": reason }));
                format!("not measured: {reason}")
            }
        };
        rows.push(Row::table(label, Value::Text(text)));
    }
    rows.push(Row::json("beside", Value::Nested(objects.into())));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(way: FileWay, rounds: Result<Vec<f64>, String>) -> Other {
        Other { way, rounds, reader: None }
    }

    #[test]
    fn the_middle_round_counts_and_a_way_that_cannot_be_gone_says_why() {
        let others = vec![
            other(FileWay::Pread, Ok(vec![5e9, 1e9, 2e9])),
            other(FileWay::Cufile, Err("no cuFile library".to_owned())),
        ];
        let rows = rows(4096, 20e9, others);
        let text = crate::report::table(&rows);
        assert!(text.contains("2.00 GB/s, 0.488 M/s; tentpeg 10.0 times as fast"), "{text}");
        assert!(text.contains("beside: cufile   not measured: no cuFile library"), "{text}");
        let Some(Value::Nested(json)) = rows.last().map(|row| row.value.clone()) else { panic!() };
        assert_eq!((&json[1]["tentpeg_times"], &json[2]["error"]), (&json!(10.0), &json!("no cuFile library")));
    }

    #[test]
    fn lists_are_of_whole_blocks_of_the_file_side_by_side_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len((1 << 20) + 100).unwrap();
        let plan = |block| Plan { block, page: block, ..super::super::tests::plan("").unwrap() };
        let path = file.path().to_owned();
        let mut source = Source::open(&path, &plan(64 << 10)).unwrap();
        let list = source.list();
        assert_eq!((list.len(), source.memory_len()), (1024, 64 << 20));
        for (number, read) in (0..).zip(&list) {
            assert_eq!((read.at, read.len, read.offset % (64 << 10)), (number << 16, 64 << 10, 0));
            assert!(read.offset + read.len <= 1 << 20);
        }
        assert_eq!(Source::open(&path, &plan(4096)).unwrap().list().len(), 4096);
        let short = Source::open(&path, &plan(2 << 20)).err().unwrap().to_string();
        assert!(short.contains("1048676 bytes are fewer than the 2097152 of a request"), "{short}");
    }
}

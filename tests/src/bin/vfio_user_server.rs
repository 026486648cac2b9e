//! Serves a model over a vfio-user socket, for the device tests.
//!
//! It prints `ready` when a client can connect, or `refused: ` and why there can be no such model. A line `seen` on
//! its standard input is answered by what the model has seen; the end of the input is the end of the process, so that it
//! does not outlive its test.

use std::error::Error;
use std::io::{self, BufRead};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use clap::{Parser, ValueEnum};
use tentpeg_driver::model::{Drive, Model, ModelConfig, SoftwareIommu, StoreConfig};
use tentpeg_driver::spec::registers::offset;
use tentpeg_driver::vfio_user::{PciIdentity, Server, ServerConfig};
use tentpeg_tests::device_tests::{READY, REFUSED, SEEN, Witness};

/// The identity of QEMU's controller: the model has none of its own.
const IDENTITY: PciIdentity = PciIdentity { vendor: 0x1b36, device: 0x0010 };

/// Serves a software NVMe controller over a vfio-user socket.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where the socket is made; nothing must be there
    #[arg(long)]
    socket: PathBuf,
    /// Where blocks lie
    #[arg(long, value_enum, default_value_t = Store::Memory)]
    store: Store,
    /// Bytes of a logical block
    #[arg(long)]
    lba_size: Option<u32>,
    /// MDTS as it stands in Identify Controller
    #[arg(long)]
    mdts: Option<u8>,
    /// CAP.MQES as it stands there
    #[arg(long)]
    mqes: Option<u16>,
    /// CAP.MPSMIN
    #[arg(long)]
    mpsmin: Option<u8>,
    /// CAP.DSTRD
    #[arg(long)]
    dstrd: Option<u8>,
    /// Refuse memory that its client could cut short while it is mapped
    #[arg(long)]
    sealed_memory_only: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Store {
    /// In memory of this process
    Memory,
    /// Nowhere
    Null,
}

fn main() -> ExitCode {
    match serve(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vfio_user_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let plain = ModelConfig::default();
    let config = ModelConfig {
        store: match arguments.store {
            Store::Memory => StoreConfig::Memory,
            Store::Null => StoreConfig::Null,
        },
        lba_size: arguments.lba_size.unwrap_or(plain.lba_size),
        mdts: arguments.mdts.unwrap_or(plain.mdts),
        mqes: arguments.mqes.unwrap_or(plain.mqes),
        mpsmin: arguments.mpsmin.unwrap_or(plain.mpsmin),
        dstrd: arguments.dstrd.unwrap_or(plain.dstrd),
        ..plain
    };
    // Two doorbells of each queue pair, the admin queues' first.
    let doorbells = 2 * (u64::from(config.queues) + 1);
    let registers = offset::DOORBELLS + (doorbells << (2 + config.dstrd));
    let iommu = SoftwareIommu::new();
    let model = match Model::new(config, Drive::Threaded, &iommu) {
        Ok(model) => Arc::new(model),
        Err(error) => {
            println!("{REFUSED}{error}");
            return Ok(());
        }
    };
    let listener = UnixListener::bind(&arguments.socket)?;
    let witness = Arc::clone(&model);
    thread::spawn(move || answer(&*witness));
    let config =
        ServerConfig { sealed_memory_only: arguments.sealed_memory_only, ..ServerConfig::new(IDENTITY, registers) };
    let mut server = Server::new(model.function(), iommu, config);
    println!("{READY}");
    for stream in listener.incoming() {
        if let Err(error) = server.serve(stream?) {
            eprintln!("vfio_user_server: a client: {error}");
        }
    }
    Ok(())
}

/// Answers what is asked on the standard input, until its end.
fn answer(witness: &dyn Witness) {
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        if line == SEEN {
            let seen = witness.seen();
            println!("{SEEN} {} {} {}", seen.commands, seen.bytes, seen.violations);
        }
    }
    std::process::exit(0);
}

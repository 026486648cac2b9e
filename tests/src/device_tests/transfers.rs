//! Bytes there and back.

use tentpeg_engine::{EngineConfig, Memory, OpCode, TransferState};

use super::bench::{fill, holds};
use super::{DeviceTest, Ending, EngineBench, Tier, Verdict, Wanted, ensure};

const MIB: u64 = 1 << 20;

pub(super) fn tests() -> Vec<DeviceTest> {
    let mut tests = vec![
        DeviceTest::new("first and last block are read back", first_and_last),
        DeviceTest::new("requests beyond the end are refused", beyond_the_end),
        DeviceTest::new("a flush completes", flush),
    ];
    for size in [2, 4, 8] {
        for offset in [0, 512, 4092] {
            tests.push(DeviceTest::new(format!("{size} MiB at offset {offset} are one command"), move |tier| {
                one_command(tier, size * MIB, offset)
            }));
        }
    }
    for offset in [0, 512] {
        tests.push(DeviceTest::new(
            format!("2 MiB in 64 shuffled pieces at offset {offset} are one command"),
            move |tier| joined(tier, offset),
        ));
    }
    tests.push(DeviceTest::new("neighbours in memory at offset 4092 are one command", neighbours));
    tests
}

fn first_and_last(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.engine(Wanted::default(), EngineConfig::default())?;
    let segment = bench.engine.segments()[0].clone();
    let lba = segment.lba_size;
    let memory = bench.engine.allocate_memory(4 * lba as usize)?;
    let view = memory.view();
    let last = segment.capacity - lba;
    for (at, seed) in [(0, 1), (lba, 2)] {
        fill(view.slice(at as usize, lba as usize), seed);
    }
    let write = [(0, 0), (lba, last)].map(|(at, offset)| bench.request(OpCode::Write, &memory, at, offset, lba));
    bench.transfer(&write)?;
    view.slice(2 * lba as usize, 2 * lba as usize).fill(0xEE);
    let read =
        [(2 * lba, 0), (3 * lba, last)].map(|(at, offset)| bench.request(OpCode::Read, &memory, at, offset, lba));
    bench.transfer(&read)?;
    for (at, seed) in [(2 * lba, 1), (3 * lba, 2)] {
        holds(view.slice(at as usize, lba as usize), seed)?;
    }
    bench.finish()
}

fn beyond_the_end(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.engine(Wanted::default(), EngineConfig::default())?;
    let segment = bench.engine.segments()[0].clone();
    let lba = segment.lba_size;
    let memory = bench.engine.allocate_memory(2 * lba as usize)?;
    let wrong = [(segment.capacity, lba), (segment.capacity - lba, 2 * lba), (u64::MAX - lba + 1, lba)];
    let requests = wrong.map(|(offset, length)| bench.request(OpCode::Read, &memory, 0, offset, length));
    let batch = bench.run(&requests)?;
    for task in 0..batch.tasks() {
        let state = batch.status(task)?.state;
        ensure(state == TransferState::Invalid, || format!("{:?} is {state}", requests[task as usize]))?;
    }
    ensure(bench.engine.counters().commands == 0, || "a command was issued".to_owned())?;
    bench.finish()
}

fn flush(tier: &dyn Tier) -> Verdict {
    let mut bench = tier.engine(Wanted::default(), EngineConfig::default())?;
    let segment = bench.engine.segments()[0].id;
    let batch = bench.engine.allocate_batch(1)?;
    let task = bench.engine.submit_flush(&batch, segment)?;
    // Nothing is asked for but that the lane turns until the flush has ended.
    for _ in 0..1_000_000 {
        match &mut bench.lane {
            Some(lane) => drop(lane.turn()),
            None => std::thread::yield_now(),
        }
        if batch.overall().is_finished() {
            break;
        }
    }
    let state = batch.status(task)?.state;
    ensure(state == TransferState::Completed, || format!("it is {state}"))?;
    bench.finish()
}

/// An engine on blocks of 512 bytes, one command of which carries `bytes`.
fn engine_for(tier: &dyn Tier, bytes: u64) -> Result<EngineBench, Ending> {
    let wanted = Wanted { lba_size: Some(512), mdts: Some(0), ..Wanted::default() };
    let bench = tier.engine(wanted, EngineConfig::default())?;
    let max = bench.engine.info().limits.max_transfer();
    if max < bytes {
        return Err(Ending::Skipped(format!("a command carries {max} bytes at the most")));
    }
    Ok(bench)
}

/// Writes the pieces (place in memory, length) as consecutive blocks, reads them back, and expects a command each way.
fn there_and_back(bench: &mut EngineBench, memory: &Memory, pieces: &[(u64, u64)]) -> Verdict {
    let view = memory.view();
    let request = |bench: &EngineBench, opcode| {
        let mut target = 12 * MIB;
        let requests: Vec<_> = pieces
            .iter()
            .map(|(at, length)| {
                target += length;
                bench.request(opcode, memory, *at, target - length, *length)
            })
            .collect();
        requests
    };
    view.fill(0xEE);
    for (seed, (at, length)) in (1..).zip(pieces) {
        fill(view.slice(*at as usize, *length as usize), seed);
    }
    bench.transfer(&request(bench, OpCode::Write))?;
    view.fill(0xEE);
    bench.transfer(&request(bench, OpCode::Read))?;
    for (seed, (at, length)) in (1..).zip(pieces) {
        holds(view.slice(*at as usize, *length as usize), seed)?;
    }
    let touched: u64 = pieces.iter().map(|(_, length)| length).sum();
    let mut bytes = vec![0; memory.len()];
    view.read(0, &mut bytes);
    for (at, length) in pieces {
        bytes[*at as usize..(at + length) as usize].fill(0xEE);
    }
    ensure(bytes.iter().all(|byte| *byte == 0xEE), || format!("bytes around the {touched} asked for were touched"))?;
    let commands = bench.engine.counters().commands;
    ensure(commands == 2, || format!("{commands} commands for one write and one read"))
}

fn one_command(tier: &dyn Tier, bytes: u64, offset: u64) -> Verdict {
    let mut bench = engine_for(tier, bytes)?;
    let memory = bench.engine.allocate_memory((bytes + 8192) as usize)?;
    there_and_back(&mut bench, &memory, &[(offset, bytes)])?;
    bench.finish()
}

fn joined(tier: &dyn Tier, offset: u64) -> Verdict {
    let mut bench = engine_for(tier, 2 * MIB)?;
    let page = 32 << 10;
    let memory = bench.engine.allocate_memory(4 * MIB as usize)?;
    // Each piece has a page of its own, far from the one before; the first starts inside of it.
    let mut pieces: Vec<_> = (0..64).map(|piece| (piece * 37 % 64 * 2 * page, page)).collect();
    pieces[0] = (pieces[0].0 + offset, page - offset);
    there_and_back(&mut bench, &memory, &pieces)?;
    bench.finish()
}

fn neighbours(tier: &dyn Tier) -> Verdict {
    let mut bench = engine_for(tier, 2 * MIB)?;
    let memory = bench.engine.allocate_memory(4 * MIB as usize)?;
    // They meet inside of pages, but in memory nothing lies between them.
    let pieces: Vec<_> = (0..16).map(|piece| (4092 + piece * 6656, 6656)).collect();
    there_and_back(&mut bench, &memory, &pieces)?;
    bench.finish()
}

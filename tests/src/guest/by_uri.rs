//! An engine on controllers by their URIs, as an operator names them.

use tentpeg_engine::ownership::lock::LockFolder;
use tentpeg_engine::{Engine, OpCode, OpenOptions, Request, TransferState};
use uuid::Uuid;

use super::checks::Functions;
use crate::device_tests::bench::{fill, holds};
use crate::device_tests::{Ending, EngineBench, Verdict, ensure};

/// Bytes that are moved, and where on each controller.
const LEN: u64 = 1 << 20;

/// An engine opens two controllers by what they are called, into one address space: what is read from one is written to
/// the other, from the same memory. Without `overwrite` nothing is written.
pub(super) fn by_uri(functions: &Functions) -> Verdict {
    let way = functions.settings.way.word();
    let uris = [functions.controller, functions.second].map(|address| format!("pci:{address},way={way}"));
    let options = OpenOptions {
        locks: Some(LockFolder::at("/tmp/locks")),
        node: Some(Uuid::from_u128(1)),
        ..OpenOptions::default()
    };
    let open = |settings: &str| {
        let uris: Vec<String> = uris.iter().map(|uri| format!("{uri}{settings}")).collect();
        let (engine, lane) = Engine::open_devices(uris, options.clone())?;
        let segments: Vec<_> = engine.segments().iter().map(|segment| segment.id).collect();
        let [first, second] = segments[..] else { return Err(Ending::Failed(format!("segments {segments:?}"))) };
        Ok((EngineBench { engine, lane, process: None }, first, second))
    };
    let (mut bench, first, second) = open(",overwrite")?;
    let memory = bench.engine.allocate_memory(LEN as usize)?;
    let request =
        |opcode, target_id| Request { opcode, source: memory.address(), target_id, target_offset: LEN, length: LEN };
    fill(memory.view(), 1);
    bench.transfer(&[request(OpCode::Write, first)])?;
    memory.view().fill(0xEE);
    bench.transfer(&[request(OpCode::Read, first)])?;
    bench.transfer(&[request(OpCode::Write, second)])?;
    memory.view().fill(0xEE);
    bench.transfer(&[request(OpCode::Read, second)])?;
    holds(memory.view(), 1)?;
    drop(memory);
    bench.finish()?;
    let (mut bench, first, _) = open("")?;
    let memory = bench.engine.allocate_memory(LEN as usize)?;
    let write =
        Request { opcode: OpCode::Write, source: memory.address(), target_id: first, target_offset: 0, length: 4096 };
    let batch = bench.run(&[write])?;
    ensure(batch.status(0)?.state == TransferState::Invalid, || format!("{:?}", batch.status(0)))?;
    drop((batch, memory));
    bench.finish()
}

//! How the direct way to GPU memory is proved by the engine's devices, before requests can name the memory.

use tentpeg_driver::dma::{Access, Iova};
use tentpeg_driver::gpu::WritesOrdering;

use super::{Engine, Opened};
use crate::batch::Batch;
use crate::gpu::proof::{Mover, Proof, Proved, has_room};
use crate::gpu::{EngineGpu, GpuProof, MemoryPath, ProofError, Proving};
use crate::lane::Lane;
use crate::memory::Memory;
use crate::segment::{BlockExtent, Durability};
use crate::task::{Head, Transfer, Work};
use crate::{OpCode, TransferState};

impl Engine {
    /// Proves the way to `memory`, of which no request knows yet, as far as was asked for; `None` where devices do not reach
    /// it by themselves.
    ///
    /// # Errors
    /// [`ProofError`]; no device touches the memory then.
    pub(super) fn prove(
        &self,
        gpu: &EngineGpu,
        memory: &Memory,
        lane: &mut Option<&mut Lane>,
    ) -> Result<Option<GpuProof>, ProofError> {
        let path = match memory.path() {
            path @ MemoryPath::Gpu { .. } => path.to_string(),
            _ => return Ok(None),
        };
        let (Some(iova), false) = (memory.first_iova(), gpu.proving() == Proving::Off) else { return Ok(None) };
        let proved =
            Proved { address: memory.address(), len: memory.len() as u64, iova, access: memory.access(), path: &path };
        let (mut devices, mut not_tried) = (0, None);
        // Copies and buffers serve one device after the other.
        let mut made: Option<Proof> = None;
        for (number, opened) in (0..).zip(&self.devices) {
            let scratch = self.scratch(opened, gpu, &proved, lane.is_some());
            let tried = scratch.map_err(str::to_owned).and_then(|scratch| {
                let lba_size = opened.info.limits.lba_size() as usize;
                let register = |memory| self.space.register(memory, Access::all());
                let proof = match made.take().filter(|proof| proof.len() == Proof::length(lba_size)) {
                    Some(proof) => Ok(proof),
                    None => Proof::new(gpu.accelerator(), lba_size, register),
                };
                proof.map(|proof| (proof, scratch.slba())).map_err(|error| error.to_string())
            });
            let tried = match tried {
                Ok((mut proof, slba)) => {
                    let length = proof.len() as u64;
                    let mut mover = ByLane { engine: self, device: number, slba, length, lane: lane.as_deref_mut() };
                    let ended = proof.run(proved, &opened.info.name, &mut mover);
                    made = Some(proof);
                    match ended {
                        // A drive that serves nobody says nothing of the way, and is no reason to refuse it to others.
                        Err(ProofError::Scratch { reason, .. }) => Err(reason),
                        ended => Ok(ended?),
                    }
                }
                Err(reason) => Err(reason),
            };
            match tried {
                Ok(()) => devices += 1,
                Err(reason) => not_tried = Some(format!("{}: {reason}", opened.info.name)),
            }
        }
        match (not_tried, gpu.proving()) {
            (None, _) => Ok(Some(GpuProof::Proved { devices })),
            (Some(reason), Proving::Required) => Err(ProofError::NotPossible { reason }),
            (Some(reason), _) => Ok(Some(GpuProof::NotTried { reason })),
        }
    }

    /// Where a device may write for a proof, or why it cannot make one.
    fn scratch(
        &self,
        opened: &Opened,
        gpu: &EngineGpu,
        proved: &Proved<'_>,
        has_lane: bool,
    ) -> Result<BlockExtent, &'static str> {
        let info = gpu.accelerator().info();
        let seen = !info.needs_flush(WritesOrdering::Owner) || info.host_flush;
        let lba_size = opened.info.limits.lba_size();
        let block = Proof::length(lba_size as usize) as u64;
        let scratch = opened.scratch.filter(|scratch| scratch.blocks().saturating_mul(lba_size) >= block);
        if self.lanes.is_empty() && !has_lane {
            Err("the caller drives its lane, and has not lent it: there is a form of the call that takes it")
        } else if !opened.info.writable {
            Err("it may not be written")
        } else if !has_room(proved.address, proved.len, block) {
            Err("the memory is smaller than what is moved for it")
        } else if !seen && proved.access.contains(Access::DEVICE_WRITES) {
            Err("nobody can say when the GPU sees what a device has written there")
        } else {
            scratch.ok_or("it has no label with a scratch extent (tentpeg label create)")
        }
    }
}

/// Moves a block between memory and the scratch extent of a device.
struct ByLane<'a> {
    engine: &'a Engine,
    device: u8,
    slba: u64,
    length: u64,
    lane: Option<&'a mut Lane>,
}

impl Mover for ByLane<'_> {
    fn transfer(&mut self, opcode: OpCode, iova: Iova) -> Result<(), String> {
        let Self { engine, device, slba, length, ref mut lane } = *self;
        // Of no segment: one behind the last.
        let segment = u16::try_from(engine.segments.len()).unwrap_or(u16::MAX);
        let head = Head::transfer(opcode, Durability::None, device, segment);
        let transfer = Transfer { head, slba, iova, length };
        let batch = engine.allocate_batch(1).map_err(|error| error.to_string())?;
        let handed = engine.hand_over(&batch, &[transfer], |work| Some(*work), |work| Ok(Work::Transfer(*work)));
        let task = handed.map_err(|error| error.to_string())?;
        engine.wait_until(lane, || batch.overall().is_finished());
        let ended = outcome(&batch, task);
        match lane {
            Some(lane) => batch.free_with(lane),
            None => batch.free(),
        }
        ended
    }
}

fn outcome(batch: &Batch, task: u32) -> Result<(), String> {
    match (batch.status(task).map(|status| status.state), batch.failure(task)) {
        (Ok(TransferState::Completed), _) => Ok(()),
        (_, Ok(Some(reason))) => Err(reason.to_string()),
        _ => Err("its task was canceled".to_owned()),
    }
}

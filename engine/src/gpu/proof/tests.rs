//! Without devices: what moves blocks is told what to do wrong.

use std::collections::HashMap;

use proptest::prelude::*;
use tentpeg_driver::dma::{AcceleratorMemory, DmaSpace};
use tentpeg_driver::gpu::{StandIn, StandInMemory};
use tentpeg_driver::model::SoftwareIommu;

use super::*;

/// What a device does with the blocks of a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    Right,
    /// Its addresses are rounded down to pages of the GPU.
    Rounds,
    /// Reads into the memory go nowhere, and succeed.
    LosesReads,
    /// So do writes.
    LosesWrites,
    /// Its scratch extent keeps nothing.
    Forgets,
    Fails,
    /// Only commands that name the memory.
    FailsThere,
}

/// The memory, at this IOVA, and the scratch extent.
struct Rig {
    device: Device,
    memory: std::sync::Arc<StandInMemory>,
    iova: u64,
    host: HashMap<u64, (usize, usize)>,
    scratch: Vec<u8>,
    moved: Vec<(OpCode, u64)>,
}

impl Mover for Rig {
    fn transfer(&mut self, opcode: OpCode, iova: Iova) -> Result<(), String> {
        if self.device == Device::Fails {
            return Err("Internal Error".to_owned());
        }
        let at = iova.get();
        let len = self.scratch.len();
        if let Some((base, room)) = self.host.get(&at) {
            assert!(len <= *room);
            let host = std::ptr::with_exposed_provenance_mut::<u8>(*base);
            match opcode {
                OpCode::Write if self.device == Device::Forgets => {}
                // SAFETY: the proof's own host memory, which is mapped for as long as the proof is.
                OpCode::Write => unsafe { std::ptr::copy(host, self.scratch.as_mut_ptr(), len) },
                // SAFETY: as above.
                OpCode::Read => unsafe { std::ptr::copy(self.scratch.as_ptr(), host, len) },
            }
            return Ok(());
        }
        if self.device == Device::FailsThere {
            return Err("Data Transfer Error".to_owned());
        }
        self.moved.push((opcode, at - self.iova));
        let at = if self.device == Device::Rounds { at / (64 << 10) * (64 << 10) } else { at };
        let offset = (at - self.iova) as usize;
        match (opcode, self.device) {
            (OpCode::Read, Device::LosesReads) | (OpCode::Write, Device::LosesWrites) => {}
            (OpCode::Write, _) => self.memory.view().read(offset, &mut self.scratch),
            (OpCode::Read, _) => self.memory.view().write(offset, &self.scratch),
        }
        Ok(())
    }
}

const LEN: usize = 256 << 10;

/// Runs a proof of memory from `begin` on; what the memory holds afterwards is what it held before.
fn run(device: Device, begin: u64, len: u64, access: Access) -> (Result<(), ProofError>, Vec<(OpCode, u64)>) {
    let gpu = StandIn::new(1 << 20);
    let memory = gpu.allocate_memory(LEN).unwrap();
    let bytes: Vec<u8> = (0..LEN as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
    memory.view().write(0, &bytes);
    let iommu = SoftwareIommu::new();
    let space: std::sync::Arc<DmaSpace> = iommu.space();
    let gpu: Arc<dyn Accelerator> = gpu;
    let mut host = HashMap::new();
    let mut proof = Proof::new(&gpu, 512, |memory| {
        let (base, len) = (memory.base().as_ptr().expose_provenance(), memory.len());
        let region = space.register(memory, Access::all())?;
        host.insert(region.iova().get(), (base, len));
        Ok(region)
    })
    .unwrap();
    let scratch = vec![0; proof.len()];
    let first = Iova::new(0x7000_0000).unwrap();
    let mut rig =
        Rig { device, memory: std::sync::Arc::clone(&memory), iova: first.get(), host, scratch, moved: vec![] };
    let iova = first.checked_add(begin).unwrap();
    let proved = Proved { address: memory.address() + begin, len, iova, access, path: "direct" };
    let ended = proof.run(proved, "drive", &mut rig);
    if device != Device::Rounds {
        let mut after = vec![0; LEN];
        memory.view().read(0, &mut after);
        assert!(after == bytes, "the memory is as it was");
    }
    (ended, rig.moved)
}

#[test]
fn a_way_that_leads_where_it_should_is_proved_in_both_directions() {
    let (ended, moved) = run(Device::Right, 0, LEN as u64, Access::all());
    ended.unwrap();
    let middle = (LEN / 2 + 4096) as u64;
    assert!(middle.is_multiple_of(4096) && !middle.is_multiple_of(64 << 10));
    let places = [0, middle, (LEN - 4096) as u64];
    let both = places.iter().flat_map(|place| [(OpCode::Write, *place), (OpCode::Read, *place)]);
    assert_eq!(moved, both.collect::<Vec<_>>());
    let (ended, moved) = run(Device::Right, 8, 20_000, Access::DEVICE_READS);
    ended.unwrap();
    assert!(moved.iter().all(|(opcode, _)| *opcode == OpCode::Write), "{moved:?}");
    let (ended, moved) = run(Device::Right, 8, 20_000, Access::DEVICE_WRITES);
    ended.unwrap();
    assert!(moved.iter().all(|(opcode, _)| *opcode == OpCode::Read), "{moved:?}");
}

#[test]
fn bytes_that_go_astray_are_found_whichever_way_they_went() {
    let astray = |device| match run(device, 0, LEN as u64, Access::all()).0 {
        Err(ProofError::Astray { moved, wrong, len, .. }) => {
            assert!(wrong > len / 2, "{wrong} of {len}");
            moved
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(astray(Device::LosesWrites), Moved::OutOfMemory);
    assert_eq!(astray(Device::LosesReads), Moved::IntoMemory);
    assert_eq!(astray(Device::Rounds), Moved::OutOfMemory);
    // The beginning of a page alone would not have told.
    run(Device::Rounds, 0, 4096, Access::all()).0.unwrap();
}

#[test]
fn a_device_that_fails_or_forgets_proves_nothing() {
    for (device, text) in [(Device::Fails, "Internal Error"), (Device::Forgets, "does not keep")] {
        let error = run(device, 0, LEN as u64, Access::all()).0.unwrap_err();
        assert!(matches!(error, ProofError::Scratch { .. }) && error.to_string().contains(text), "{error}");
    }
    let error = run(Device::FailsThere, 0, LEN as u64, Access::all()).0.unwrap_err();
    assert!(matches!(error, ProofError::Command { .. }), "{error}");
}

proptest! {
    #[test]
    fn spots_lie_in_the_memory_on_dwords(address in 0u64..1 << 48, len in 0u64..1 << 22, shift in 12u32..17) {
        let block = 1u64 << shift;
        let spots = spots(address, len, block);
        prop_assert_eq!(spots.is_empty(), len < block + (address.next_multiple_of(4) - address));
        for spot in &spots {
            prop_assert!((address + spot).is_multiple_of(4) && spot + block <= len);
        }
        prop_assert!(spots.is_sorted_by(|one, other| one < other));
    }
}

//! What CUDA says of addresses, and which ways there are to what lies there.

use tentpeg_driver::dma::Translation;
use tentpeg_driver::gpu::{AllocationKind, PlaceError, Wanted, WritesOrdering, climb, locate};

use super::foreign;
use super::{Check, Rig, check, ensure};
use crate::device_tests::Ending;

const MIB: u64 = 1 << 20;

pub(super) fn checks() -> Vec<Check> {
    vec![
        check("the GPU", |rig| Ok(format!("{:?}; {:?}", rig.gpu.info(), rig.gpu.cuda()))),
        check("cuMemAlloc: any address inside is found exactly", |rig| {
            let memory = rig.memory(3 << 20)?;
            let found = locate(&*rig.gpu, 0, memory.address() + 4100, MIB)?;
            let [one] = found.allocations[..] else { return Err(Ending::Failed(format!("{found:?}"))) };
            let (base, kind) = (memory.address(), AllocationKind::Plain);
            ensure((one.base, one.kind, one.rdma_capable) == (base, kind, true), || format!("{found:?}"))?;
            Ok(format!("{one:?}"))
        }),
        check("cuMemAllocAsync, from a pool", |rig| {
            foreign::enter()?;
            let memory = foreign::pooled(MIB as usize)?;
            let found = locate(&*rig.gpu, 0, memory.address + 8, 4096)?;
            ensure(found.allocations[0].kind == AllocationKind::Pool, || format!("{found:?}"))?;
            Ok(format!("{:?}", found.allocations[0]))
        }),
        check("cuMemMap: pieces side by side, and one without", |rig| {
            foreign::enter()?;
            let memory = foreign::reserved(4, &[0, 1, 3], true)?;
            let found = locate(&*rig.gpu, 0, memory.address + 5 * 4096, 3 * MIB)?;
            let kinds = found.allocations.iter().all(|one| one.kind == AllocationKind::Mapping && one.rdma_capable);
            ensure(found.allocations.len() == 2 && kinds, || format!("{found:?}"))?;
            let hole = memory.address + 4 * MIB;
            match locate(&*rig.gpu, 0, memory.address, 8 * MIB) {
                Err(PlaceError::Hole { hole: at, .. }) if at == hole => {}
                other => return Err(Ending::Failed(format!("{other:?}"))),
            }
            let closed = foreign::reserved(1, &[0], false)?;
            let closed = locate(&*rig.gpu, 0, closed.address, MIB)?;
            Ok(format!("{:?}; without gpuDirectRDMACapable: {:?}", found.allocations[1], closed.rdma_capable()))
        }),
        check("managed memory, host memory, no memory of CUDA's", |rig| {
            foreign::enter()?;
            let (managed, host) = (foreign::managed(4096)?, foreign::host(4096)?);
            let own = Box::new(0u64);
            let own = std::ptr::from_ref(&*own).addr() as u64;
            let answers = [managed.address, host.address, own].map(|address| locate(&*rig.gpu, 0, address, 8));
            let right = matches!(
                answers,
                [Err(PlaceError::Managed { .. }), Err(PlaceError::Host { .. }), Err(PlaceError::NotCuda { .. })]
            );
            ensure(right, || format!("{answers:?}"))?;
            Ok("each refused".to_owned())
        }),
        check("past an allocation, a wrong GPU, freed, freed and used again", |rig| {
            let memory = rig.memory(2 << 20)?;
            let address = memory.address();
            let past = locate(&*rig.gpu, 0, address + MIB, MIB + 1);
            ensure(matches!(past, Err(PlaceError::PastAllocation { .. })), || format!("{past:?}"))?;
            let wrong = locate(&*rig.gpu, 1, address, 8);
            ensure(matches!(wrong, Err(PlaceError::WrongDevice { .. })), || format!("{wrong:?}"))?;
            let found = locate(&*rig.gpu, 0, address, MIB)?;
            found.check(&*rig.gpu)?;
            drop(memory);
            let freed = locate(&*rig.gpu, 0, address, 8);
            ensure(matches!(freed, Err(PlaceError::NotCuda { .. })), || format!("{freed:?}"))?;
            ensure(found.check(&*rig.gpu).is_err(), || "what was freed was still there".to_owned())?;
            let again = rig.memory(2 << 20)?;
            let gone = found.check(&*rig.gpu);
            ensure(matches!(gone, Err(PlaceError::Gone { .. })), || format!("{gone:?}"))?;
            Ok(format!("each refused; the same address was given out again: {}", again.address() == address))
        }),
        check("the ways to it, with type1", |rig| ladder(rig, Translation::Type1)),
        check("the ways to it, with iommufd", |rig| ladder(rig, Translation::Iommufd)),
    ]
}

fn ladder(rig: &mut Rig, translation: Translation) -> Result<String, Ending> {
    let memory = rig.memory(4 << 20)?;
    let placement = locate(&*rig.gpu, 0, memory.address(), 4 * MIB)?;
    let rungs = climb(
        &*rig.gpu,
        Wanted {
            placement: &placement,
            translation,
            bar1_free: None,
            bar1_left: None,
            visible_to: WritesOrdering::Owner,
        },
    );
    ensure(rungs[3].obstacle.is_none(), || "staging is always there".to_owned())?;
    let told = rungs.iter().map(|rung| match &rung.obstacle {
        Some(obstacle) => format!("{}: {obstacle}", rung.path),
        None => format!("{}: free", rung.path),
    });
    Ok(told.collect::<Vec<_>>().join("; "))
}

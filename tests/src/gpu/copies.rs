//! The copier: every byte in its place, and how fast.

use std::time::Instant;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tentpeg_driver::gpu::{Copier, CopierConfig};

use super::rig::Way;
use super::{Check, Outcome, Rig, check, ensure, median};

/// Bytes of each side in a check.
const ROOM: usize = 4 << 20;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for way in [Way::In, Way::Out] {
        for engine in [false, true] {
            let by = if engine { "the copy engine" } else { "the kernel" };
            checks.push(check(format!("{way:?} by {by}: parts of any length and alignment"), move |rig| {
                any(rig, way, engine)
            }));
        }
    }
    checks.push(check("series: a word that is wrong is found", |rig| {
        let memory = rig.memory(1 << 20)?;
        let parts: Vec<_> = (0..64).map(|index| ((index * 16384, 16384), index as u64)).collect();
        rig.fill(&memory, &parts)?;
        let right = rig.verify(&memory, &parts)?;
        ensure(right.is_none(), || format!("{right:?} differ that were just written"))?;
        rig.put(&memory, 37 * 16384 + 8, &[0; 16])?;
        let wrong = rig.verify(&memory, &parts)?;
        ensure(wrong == Some((2, 37)), || format!("two words of part 37 were changed, and found was {wrong:?}"))?;
        Ok("two words in part 37".to_owned())
    }));
    checks
}

/// Parts at random places, against the same done by the host; what lies between them stays.
fn any(rig: &mut Rig, way: Way, engine: bool) -> Outcome {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let (far, near) = (rig.memory(ROOM)?, rig.pinned(ROOM)?);
    let mut before = [vec![0u8; ROOM], vec![0u8; ROOM]];
    before.iter_mut().for_each(|bytes| random.fill_bytes(bytes));
    let [on_gpu, on_host] = &before;
    rig.put(&far, 0, on_gpu)?;
    near.view().write(0, on_host);
    let mut parts = Vec::new();
    let (mut at_far, mut at_near) = (0, 0);
    loop {
        let mut below = |most: u64| (random.next_u64() % most) as usize;
        // Gaps that make every alignment of both ends occur, and often the same for both.
        let gap = below(40);
        at_far += gap;
        at_near += if below(2) == 0 { gap } else { below(40) };
        let len = match below(8) {
            0 => below(16),
            1 => below(70_000),
            2 => 4096,
            3 => 16 << 10,
            _ => below(2000),
        };
        if at_far.max(at_near) + len > ROOM {
            break;
        }
        parts.push((at_far, at_near, len));
        (at_far, at_near) = (at_far + len, at_near + len);
    }
    let (mut gpu_after, mut host_after) = (on_gpu.clone(), on_host.clone());
    for (far, near, len) in &parts {
        match way {
            Way::In => gpu_after[*far..far + len].copy_from_slice(&on_host[*near..near + len]),
            Way::Out => host_after[*near..near + len].copy_from_slice(&on_gpu[*far..far + len]),
        }
    }
    if engine {
        // A copy engine is not asked for nothing.
        parts.retain(|(.., len)| *len > 0);
    }
    rig.copy(&far, &near, &parts, way, engine)?;
    let mut seen = vec![0; ROOM];
    near.view().read(0, &mut seen);
    ensure(rig.get(&far, (0, ROOM))? == gpu_after, || "the GPU's side is not what it should be".to_owned())?;
    ensure(seen == host_after, || "the host's side is not what it should be".to_owned())?;
    Ok(format!("{} parts", parts.len()))
}

pub(super) fn measurements() -> Vec<Check> {
    let mut checks = Vec::new();
    for way in [Way::In, Way::Out] {
        for size in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20] {
            for (by, engine_from) in [("kernel", u64::MAX), ("copy engine", 1)] {
                let name = format!("copier, {way:?}, {} KiB, {by}", size >> 10);
                checks.push(check(name, move |rig| measure(rig, way, size, engine_from)));
            }
        }
    }
    checks
}

/// Copies of `size` bytes to and from shuffled places, 16 MiB a list and several lists in flight.
fn measure(rig: &mut Rig, way: Way, size: usize, engine_from: u64) -> Outcome {
    const ALL: usize = 256 << 20;
    let (far, near) = (rig.memory(ALL)?, rig.pinned(ALL)?);
    let (count, places) = ((16 << 20) / size, ALL / size);
    let parts: Vec<_> =
        (0..count).map(|index| (index * 37 % places * size, index * 101 % places * size, size)).collect();
    let bytes = (count * size) as f64;
    let rounds = if engine_from == 1 && size < 64 << 10 { 4 } else { 128 };
    let mut copier = Copier::new(&rig.gpu, CopierConfig { pieces: 1 << 18, engine_from })?;
    Rig::copy_often(&mut copier, (&far, &near), (&parts, way), 2)?;
    let speed = median(|| {
        let start = Instant::now();
        Rig::copy_often(&mut copier, (&far, &near), (&parts, way), rounds)?;
        Ok(bytes * rounds as f64 / start.elapsed().as_secs_f64())
    })?;
    Ok(format!("{:6.2} GB/s {:8.3} M/s", speed / 1e9, speed / size as f64 / 1e6))
}

//! Paged KV blocks: packed and unpacked bit for bit, against the host's own walk of the tensors.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tentpeg_driver::gpu::{KvLayout, KvShape};

use super::rig::Way;
use super::{Check, Outcome, Rig, check, ensure};
use crate::device_tests::Ending;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for layout in [KvLayout::KeysThenValues, KvLayout::BlockByBlock] {
        for (format, element, head_size) in
            [("fp16", 2, 128), ("bf16", 2, 128), ("fp8", 1, 128), ("fp8, odd heads", 1, 33)]
        {
            let shape = KvShape { layout, blocks: 96, block_size: 16, heads: 3, head_size, element };
            checks.push(check(format!("pack and unpack, {layout:?}, {format}"), move |rig| round_trip(rig, shape)));
        }
    }
    checks
}

/// Where byte `offset` of K (0) or V (1) of a block lies in a layer, written down from the tensor's indices.
fn place(shape: KvShape, kv: usize, block: usize, offset: usize) -> usize {
    let piece = (shape.block_size * shape.heads * shape.head_size * shape.element) as usize;
    match shape.layout {
        KvLayout::KeysThenValues => (kv * shape.blocks as usize + block) * piece + offset,
        KvLayout::BlockByBlock => (block * 2 + kv) * piece + offset,
    }
}

fn round_trip(rig: &mut Rig, shape: KvShape) -> Outcome {
    const LAYERS: usize = 5;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    let bytes = shape.layer().ok_or_else(|| Ending::Failed("no bytes".to_owned()))? as usize;
    let piece = bytes / 2 / shape.blocks as usize;
    let (mut layers, mut contents) = (Vec::new(), Vec::new());
    for _ in 0..LAYERS {
        // All bit patterns: NaNs, infinities and negative zeroes among them.
        let mut content = vec![0u8; bytes];
        random.fill_bytes(&mut content);
        let layer = rig.memory(bytes)?;
        rig.put(&layer, 0, &content)?;
        layers.push(layer);
        contents.push(content);
    }
    let packed: Vec<u32> = (0..40).map(|index| index * 7 % shape.blocks).collect();
    let object = piece * 2 * LAYERS;
    let near = rig.pinned(packed.len() * object)?;
    rig.kv((shape, &layers), (&packed, &near), Way::Out)?;
    let mut expected = Vec::new();
    for block in &packed {
        for content in &contents {
            for kv in 0..2 {
                let start = place(shape, kv, *block as usize, 0);
                expected.extend_from_slice(&content[start..start + piece]);
            }
        }
    }
    let mut seen = vec![0; expected.len()];
    near.view().read(0, &mut seen);
    ensure(seen == expected, || "the objects are not the blocks".to_owned())?;
    // Into other blocks, none of them twice.
    let unpacked: Vec<u32> = (0..40).map(|index| (index * 5 + 3) % shape.blocks).collect();
    rig.kv((shape, &layers), (&unpacked, &near), Way::In)?;
    for (index, block) in unpacked.iter().enumerate() {
        for (layer, content) in contents.iter_mut().enumerate() {
            for kv in 0..2 {
                let start = place(shape, kv, *block as usize, 0);
                let from = index * object + (layer * 2 + kv) * piece;
                content[start..start + piece].copy_from_slice(&expected[from..from + piece]);
            }
        }
    }
    for (layer, content) in layers.iter().zip(&contents) {
        ensure(rig.get(layer, (0, bytes))? == *content, || "a layer is not as it should be".to_owned())?;
    }
    Ok(format!("{} blocks of {object} bytes", packed.len()))
}

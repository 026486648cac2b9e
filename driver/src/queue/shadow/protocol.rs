//! The driver's side of doorbells in memory, over whatever memory that is: write the shadow, then look at EventIdx.

/// Two words that a doorbell shares with a device.
pub(in crate::queue) trait ShadowMemory {
    /// Writes the shadow. What the entries need before a doorbell has been done.
    fn write_shadow(&self, value: u32);

    /// Keeps the load of EventIdx behind the store to the shadow: a full barrier.
    fn shadow_before_event_idx(&self);

    /// Reads EventIdx.
    fn read_event_idx(&self) -> u32;
}

/// The shadow of one doorbell, and what was written there last.
pub(in crate::queue) struct Shadow<M> {
    memory: M,
    last: u16,
}

impl<M: ShadowMemory> Shadow<M> {
    /// The shadow of a doorbell of a new queue.
    pub(in crate::queue) fn new(memory: M) -> Self {
        Self { memory, last: 0 }
    }

    /// Writes a new value. Whether the doorbell must be rung with it.
    #[inline]
    pub(in crate::queue) fn publish(&mut self, value: u16) -> bool {
        self.memory.write_shadow(value.into());
        self.memory.shadow_before_event_idx();
        let event_idx = self.memory.read_event_idx() as u16;
        let last = std::mem::replace(&mut self.last, value);
        passes(event_idx, last, value)
    }
}

/// Whether a doorbell that goes from `last` to `value` passes `event_idx`: whether that is one of the values from `last`
/// on and before `value`. Where the queue wraps between the two, numbers beyond its end count too, which are nobody's.
/// Whatever a device writes there is a number like another.
#[inline]
fn passes(event_idx: u16, last: u16, value: u16) -> bool {
    value.wrapping_sub(event_idx).wrapping_sub(1) < value.wrapping_sub(last)
}

#[cfg(test)]
mod tests;

//! Arbitration (NVM Express Base 2.1, 5.1.25.1.1).

wire_word! {
    /// Arbitration: dword 11 of Set Features, and dword 0 of the completion of Get Features (Base 2.1, 5.1.25.1.1).
    #[derive(Debug)]
    pub struct Arbitration(u32) {
        /// Arbitration Burst: the most commands fetched at a time from one queue, as a power of two; 7: no limit.
        ab / with_ab [0, 3]: u8;
        /// Low Priority Weight, 0's based.
        lpw / with_lpw [8, 8]: u8;
        /// Medium Priority Weight, 0's based.
        mpw / with_mpw [16, 8]: u8;
        /// High Priority Weight, 0's based.
        hpw / with_hpw [24, 8]: u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    field_properties! {
        arbitration_fields, u32, Arbitration::from_bits;
        ab / with_ab = 0x7;
        lpw / with_lpw = 0xFF00;
        mpw / with_mpw = 0x00FF_0000;
        hpw / with_hpw = 0xFF00_0000;
    }
}

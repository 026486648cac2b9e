//! SMART / Health Information, LID 02h (NVM Express Base 2.1, 5.1.12.1.3).

use core::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

wire_flags! {
    /// Critical Warning (Base 2.1, 5.1.12.1.3).
    pub struct CriticalWarning(u8) {
        /// Available spare is below its threshold.
        AVAILABLE_SPARE = 1 << 0;
        /// A temperature is over or under its threshold.
        TEMPERATURE = 1 << 1;
        /// The NVM subsystem's reliability is degraded.
        NVM_SUBSYSTEM_RELIABILITY = 1 << 2;
        /// All media is read-only.
        READ_ONLY = 1 << 3;
        /// The volatile memory backup device has failed.
        VOLATILE_MEMORY_BACKUP = 1 << 4;
        /// The Persistent Memory Region is read-only or unreliable.
        PERSISTENT_MEMORY_REGION = 1 << 5;
    }
}

wire_flags! {
    /// Endurance Group Critical Warning Summary (Base 2.1, 5.1.12.1.3).
    pub struct EnduranceGroupWarning(u8) {
        /// A group's available spare is below its threshold.
        AVAILABLE_SPARE = 1 << 0;
        /// A group's reliability is degraded.
        RELIABILITY = 1 << 2;
        /// A group's namespaces are read-only.
        READ_ONLY = 1 << 3;
    }
}

/// SMART / Health Information log page, LID 02h (Base 2.1, 5.1.12.1.3).
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SmartLog {
    /// Critical Warning.
    pub critical_warning: CriticalWarning,
    /// Composite Temperature in kelvins. See [`celsius`](Self::celsius).
    pub composite_temperature: U16,
    /// Available Spare in percent, 0 to 100.
    pub available_spare: u8,
    /// Available Spare Threshold in percent, 0 to 100.
    pub available_spare_threshold: u8,
    /// Percentage Used; may exceed 100; 255: more than 254.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_critical_warning_summary: EnduranceGroupWarning,
    /// Reserved.
    pub reserved_7: [u8; 25],
    /// Data Units Read, in thousands of 512-byte units, rounded up; 0: not reported.
    pub data_units_read: U128,
    /// Data Units Written, in thousands of 512-byte units, rounded up; 0: not reported.
    pub data_units_written: U128,
    /// Host Read Commands completed.
    pub host_read_commands: U128,
    /// Host Write Commands completed.
    pub host_write_commands: U128,
    /// Controller Busy Time in minutes.
    pub controller_busy_time: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unexpected Power Losses (formerly Unsafe Shutdowns).
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_and_data_integrity_errors: U128,
    /// Number of Error Information Log Entries over the controller's life.
    pub number_of_error_information_log_entries: U128,
    /// Warning Composite Temperature Time in minutes.
    pub warning_composite_temperature_time: u32,
    /// Critical Composite Temperature Time in minutes.
    pub critical_composite_temperature_time: u32,
    /// Temperature Sensors 1 to 8 in kelvins; 0: no such sensor.
    pub temperature_sensor: [u16; 8],
    /// Thermal Management Temperature 1 Transition Count.
    pub thermal_management_temperature_1_transition_count: u32,
    /// Thermal Management Temperature 2 Transition Count.
    pub thermal_management_temperature_2_transition_count: u32,
    /// Total Time For Thermal Management Temperature 1 in seconds.
    pub total_time_for_thermal_management_temperature_1: u32,
    /// Total Time For Thermal Management Temperature 2 in seconds.
    pub total_time_for_thermal_management_temperature_2: u32,
    /// Reserved.
    pub reserved_232: [u8; 280],
}

macro_rules! offsets {
    ($($field:ident = $offset:literal),+ $(,)?) => {
        $( const _: () = assert!(offset_of!(SmartLog, $field) == $offset); )+
    };
}

const _: () = assert!(size_of::<SmartLog>() == 512);
offsets! {
    critical_warning = 0, composite_temperature = 1, available_spare = 3,
    available_spare_threshold = 4, percentage_used = 5,
    endurance_group_critical_warning_summary = 6, data_units_read = 32, data_units_written = 48,
    host_read_commands = 64, host_write_commands = 80, controller_busy_time = 96, power_cycles = 112,
    power_on_hours = 128, unsafe_shutdowns = 144, media_and_data_integrity_errors = 160,
    number_of_error_information_log_entries = 176, warning_composite_temperature_time = 192,
    critical_composite_temperature_time = 196, temperature_sensor = 200,
    thermal_management_temperature_1_transition_count = 216,
    thermal_management_temperature_2_transition_count = 220,
    total_time_for_thermal_management_temperature_1 = 224,
    total_time_for_thermal_management_temperature_2 = 228, reserved_232 = 232,
}

impl Default for SmartLog {
    fn default() -> Self {
        Self::new_zeroed()
    }
}

impl SmartLog {
    /// The composite temperature in degrees Celsius. `None` when it is not reported (0 K).
    pub fn celsius(&self) -> Option<i32> {
        match self.composite_temperature.get() {
            0 => None,
            kelvins => Some(i32::from(kelvins) - 273),
        }
    }
}

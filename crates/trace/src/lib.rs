pub mod address;
pub use address::{PhysAddr, VirtAddr};
pub mod ids;
pub use ids::CpuId;

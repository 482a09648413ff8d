//! Prints what a Linux kernel image tells of itself: `cargo run --release -p guest --example linux -- vmlinuz
//! [NAME…]`.

use guest::linux::Linux;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give a kernel image")?;
    let linux = Linux::parse(&path, &std::fs::read(&path)?)?;
    println!("{}\n{} symbols, hash {}", linux.banner, linux.symbols.len(), linux.hash);
    for name in arguments {
        for symbol in linux.symbols.named(&name) {
            println!("{:#018x} {} {}", symbol.addr.0, char::from(symbol.kind), symbol.name);
        }
    }
    Ok(())
}

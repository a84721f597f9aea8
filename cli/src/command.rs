//! The commands.

mod dead_letters;
mod doctor;
mod inbox;
mod inspect;
mod maintain;
mod migrate;
mod shown;
mod window;

use crate::code::Code;
use crate::console::Console;
use crate::database::Address;
use crate::options::{Command, Options};

pub(crate) async fn run(options: &Options, console: &mut Console) -> anyhow::Result<Code> {
    let common = &options.common;
    match &options.command {
        Command::Migrate(migrate) => migrate::run(migrate, common, console).await,
        Command::Inspect(inspect) => {
            let address = Address::of(common, console)?;
            inspect::run(inspect, &address, common.json, console).await
        }
        Command::DeadLetters(letters) => {
            let address = Address::of(common, console)?;
            dead_letters::run(letters, &address, common.json, console).await
        }
        Command::Doctor(doctor) => {
            let address = Address::of(common, console)?;
            doctor::run(doctor, &address, common.json, console).await
        }
        Command::Inbox => {
            let address = Address::of(common, console)?;
            inbox::run(&address, common.json, console).await
        }
        Command::Window(window) => {
            let address = Address::given(common, console)?;
            window::run(window, address.as_ref(), common.json, console)
        }
        Command::Maintain => {
            let address = Address::of(common, console)?;
            maintain::run(&address, common.json, console).await
        }
    }
}

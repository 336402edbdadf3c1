//! What every test stands on: guards for processes, and clients that say exactly what goes over the wire.

pub(crate) mod algorithms;
pub(crate) mod client;
pub(crate) mod crowd;
pub(crate) mod gateway;
pub(crate) mod h2;
pub(crate) mod http;
pub(crate) mod judge;
pub(crate) mod killing;
pub(crate) mod load;
pub(crate) mod origin;
pub(crate) mod raw;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod settings;
pub(crate) mod trial;
pub(crate) mod wait;
pub(crate) mod wall_clock;
pub(crate) mod ways;

pub(crate) use algorithms::{Algorithm, FIVE, Quota};
pub(crate) use client::Client;
pub(crate) use crowd::{Crowd, Tally};
pub(crate) use gateway::Gateway;
pub(crate) use h2::H2Client;
pub(crate) use http::{Request, Response, get, post, request};
pub(crate) use judge::Judge;
pub(crate) use killing::{CLIENTS, Killing};
pub(crate) use load::{Answered, Load};
pub(crate) use origin::{Origin, Step};
pub(crate) use raw::Raw;
pub(crate) use redis::Redis;
pub(crate) use relay::Relay;
pub(crate) use settings::Settings;
pub(crate) use trial::{BURST, Trial};
pub(crate) use wait::{DEADLINE, pause, wait_for};
pub(crate) use wall_clock::WallClock;
pub(crate) use ways::Way;

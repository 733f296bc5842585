# `workerd serve` of the bundled worker, see scripts/edge.mjs.

using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [(name = "edge", worker = .edge)],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "edge")],
);

const edge :Workerd.Worker = (
  modules = [
    (name = "workerd.js", esModule = embed "../../build/edge/workerd.js"),
    (name = "fulmar_wasm_bg.wasm", wasm = embed "../../build/edge/fulmar_wasm_bg.wasm"),
    (name = "fulmar_sandbox.wasm", wasm = embed "../../build/edge/fulmar_sandbox.wasm"),
  ],
  compatibilityDate = "2026-01-01",
);

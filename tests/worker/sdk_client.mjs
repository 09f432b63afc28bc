// A client on the published Node SDK, in a process of its own: a JSON request a line in, an answer a line out.
// The same requests as sdk_client.py takes: call, read, write and serve.

import { createInterface } from 'node:readline'
import { registerWorker } from 'iii-sdk'
import { ChannelReader } from 'iii-sdk/channel'
import { createChannel } from 'iii-sdk/helpers'

console.log = console.info = console.debug = console.error // stdout carries the answers

const url = process.argv[2]
const iii = registerWorker(url, { workerName: 'node-client', otel: { enabled: false } })

const trigger = (id, payload) => iii.trigger({ function_id: id, payload })

async function answer(request) {
  switch (request.op) {
    case 'call':
      return { result: await trigger(request.id, request.payload) }
    case 'read': {
      const result = await trigger('shell::fs::read', request.payload)
      const reader = new ChannelReader(url, result.content)
      return { result, data: (await reader.readAll()).toString('base64') }
    }
    case 'write': {
      const channel = await createChannel(iii)
      const writing = trigger('shell::fs::write', { ...request.payload, content: channel.readerRef })
      channel.writer.stream.end(Buffer.from(request.data, 'base64'))
      return { result: await writing }
    }
    case 'serve':
      iii.registerFunction(request.id, async (data) => ({ stdout: JSON.stringify(data), exit_code: 0 }), {
        description: 'Says what it was given.',
        metadata: { internal: true },
        request_format: { type: 'object' },
        response_format: { type: 'object' },
      })
      if (request.trigger) {
        iii.registerTrigger({
          type: 'configuration',
          function_id: request.id,
          config: { configuration_id: 'shell' },
        })
      }
      return { result: null }
  }
  throw new Error(request.op)
}

for await (const line of createInterface({ input: process.stdin })) {
  let said
  try {
    said = await answer(JSON.parse(line))
  } catch (reason) {
    // The SDK puts the code before the text once more.
    const message = String(reason.message).replace(`${reason.code}: `, '')
    said = { error: { code: String(reason.code), message } }
  }
  process.stdout.write(JSON.stringify(said) + '\n')
}
await iii.shutdown()
process.exit(0)

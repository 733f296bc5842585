import { describe, expect, it } from 'vitest'
import { RobotDatasetMetadata } from '../../src/dataset/index.js'
import { Bounded, Unbounded } from '../../src/spec/index.js'
import { failing } from '../torchrl/envs/chats.js'

describe('RobotDatasetMetadata', () => {
  it('writes and reads the JSON of TorchRL', () => {
    const metadata = new RobotDatasetMetadata('lerobot/pusht', {
      ...{ embodimentId: 'pusht', actionDim: 2, actionNames: ['x', 'y'], actionSpace: 'eef_pose' },
      ...{
        gripperMode: 'none',
        controlFrequencyHz: 10,
        cameraKeys: [['observation', 'image', 'top'], 'wrist'],
      },
      ...{ stateKey: null, actionMean: [0.1, 2], actionLow: [0, 0], actionHigh: [512, 512], license: 'mit' },
    })
    const fields = JSON.parse(metadata.toJson()) as Record<string, unknown>
    expect(Object.keys(fields)).toEqual(
      'dataset_id embodiment_id action_dim action_names action_space gripper_mode control_frequency_hz camera_keys state_key instruction_key action_key action_mean action_std action_low action_high license source_url'.split(
        ' ',
      ),
    )
    expect(fields).toMatchObject({
      state_key: null,
      action_std: null,
      camera_keys: [['observation', 'image', 'top'], 'wrist'],
    })
    expect(fields.action_mean).toEqual([Math.fround(0.1), 2])
    expect(RobotDatasetMetadata.fromJson(metadata.toJson())).toEqual(metadata)
    expect(RobotDatasetMetadata.fromJson('{"dataset_id": "a", "later": 1}').actionSpace).toBe('unknown')
  })

  it('makes the spec of actions', () => {
    const bounded = new RobotDatasetMetadata('a', { actionDim: 2, actionLow: [0, -1], actionHigh: [1, 1] })
    const spec = bounded.makeActionSpec({ shapePrefix: [3] })
    expect(spec).toBeInstanceOf(Bounded)
    expect(spec.shape).toEqual([3, 2])
    expect([...(spec as Bounded).low.data]).toEqual([0, -1])
    expect(new RobotDatasetMetadata('a', { actionDim: 2 }).makeActionSpec()).toBeInstanceOf(Unbounded)
    expect(() => new RobotDatasetMetadata('a').makeActionSpec()).toThrow(failing('MALFORMED', /actionDim/))
  })

  it('refuses values that cannot be', () => {
    const make = (options: object) => () => new RobotDatasetMetadata('a', options)
    expect(() => new RobotDatasetMetadata(7 as never)).toThrow(failing('MALFORMED', /datasetId/))
    expect(make({ actionSpace: 'joints' })).toThrow(failing('UNKNOWN_NAME', /actionSpace.*joint_delta/))
    expect(make({ gripperMode: 1 })).toThrow(failing('UNKNOWN_NAME', /gripperMode/))
    expect(make({ actionDim: 0 })).toThrow(failing('OUT_OF_RANGE', /actionDim/))
    expect(make({ actionDim: 2, actionStd: [1] })).toThrow(failing('SHAPE_MISMATCH', /actionStd.*2: got 1/))
    expect(make({ actionDim: 2, actionNames: ['x'] })).toThrow(failing('SHAPE_MISMATCH', /actionNames/))
    expect(make({ actionNames: [1] })).toThrow(failing('MALFORMED', /actionNames/))
    expect(make({ actionLow: ['0'] })).toThrow(failing('MALFORMED', /actionLow/))
    expect(make({ cameraKeys: 'top' })).toThrow(failing('MALFORMED', /cameraKeys/))
    expect(make({ cameraKeys: [[]] })).toThrow(failing('MALFORMED', /cameraKeys\[0\]/))
    expect(make({ actionKey: null })).toThrow(failing('MALFORMED', /actionKey/))
    expect(make({ license: 3 })).toThrow(failing('MALFORMED', /license/))
    expect(make({ controlFrequencyHz: 'ten' })).toThrow(failing('MALFORMED', /controlFrequencyHz/))
    expect(make({ fps: 3 })).toThrow(failing('UNKNOWN_NAME', /fps/))
    for (const text of ['{', '[]', '{}'])
      expect(() => RobotDatasetMetadata.fromJson(text)).toThrow(failing('MALFORMED', /text|datasetId/))
    expect(() => RobotDatasetMetadata.fromJson(7 as never)).toThrow(failing('MALFORMED', /text/))
  })
})
